//! The leader's part: responses, handovers and standbys.

use super::*;

/// Sends a request to a leader. Returns the status and the body of the response.
async fn respond(source: &Arc<Source>, query: &str) -> (u16, Vec<u8>) {
    let reply = Source::page(Some(Arc::clone(source)))(Some(query)).await;
    (reply.status.as_u16(), reply.body)
}

fn part(answer: &(u16, Vec<u8>)) -> Part {
    assert_eq!(answer.0, 200);
    Part::read(&answer.1).unwrap()
}

#[tokio::test(start_paused = true)]
async fn clock_jump_of_the_leader_keeps_the_copied_ages() {
    let Harness { controller, clock, .. } = rig([LeaderReply::Fails]);
    let source = Source::new(Arc::clone(&controller));
    source.leads();
    controller.histories.correct_clock(clock.now());
    controller.histories.seed(&"known".into(), history(1));
    let all = part(&respond(&source, "").await);
    *clock.1.lock() = SignedDuration::from_hours(-1);
    let query = format!("since={}", all.upto);
    let again = part(&respond(&source, &query).await);
    let kept = codec::decode(&again.histories[0].1).unwrap().history;
    assert_eq!(again.now.duration_since(kept.scale_ups[0].at), all.now.duration_since(Timestamp::UNIX_EPOCH));
}

#[tokio::test(start_paused = true)]
async fn leader_holds_back_empty_responses_until_it_concludes() {
    let controller = rig([LeaderReply::Fails]).controller;
    let source = Source::new(Arc::clone(&controller));
    assert_eq!(respond(&source, "").await.0, 503);
    source.leads();
    controller.histories.seed(&"known".into(), history(1));
    let started = Instant::now();
    let all = part(&respond(&source, "wait=900ms").await);
    assert_eq!((started.elapsed(), all.full, all.last), (Duration::ZERO, true, false));

    let since = format!("since={}&wait=900ms&standby=b", all.upto);
    let asking = {
        let (source, since) = (Arc::clone(&source), since.clone());
        tokio::spawn(async move { respond(&source, &since).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    controller.histories.seed(&"new".into(), history(2));
    let news = part(&asking.await.unwrap());
    assert_eq!(started.elapsed(), Duration::from_millis(900));
    assert_eq!((news.histories.len(), news.full), (1, false));

    let since = format!("since={}&wait=1h&standby=b", news.upto);
    let asking = {
        let (source, since) = (Arc::clone(&source), since.clone());
        tokio::spawn(async move { respond(&source, &since).await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    let concluding = {
        let source = Arc::clone(&source);
        tokio::spawn(async move { source.conclude().await })
    };
    let last = part(&asking.await.unwrap());
    assert_eq!((started.elapsed(), last.last), (Duration::from_secs(1), true));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!concluding.is_finished(), "no standby has confirmed the last state");
    respond(&source, &since).await;
    concluding.await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(1100));
}

/// A connection to a leader. After a cut, the responses are lost.
#[derive(Debug)]
struct LeaderConnection {
    source: Arc<Source>,
    is_cut: AtomicBool,
}

impl PeerTransport for LeaderConnection {
    fn register(&self, _: ServedPages) {}

    fn advertised(&self) -> Option<Peer> {
        None
    }

    fn get<'a>(&'a self, _: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>> {
        Box::pin(async move {
            let (_, query) = path.split_once('?').unwrap();
            let (code, body) = respond(&self.source, query).await;
            assert_eq!(code, 200);
            if self.is_cut.load(Ordering::Relaxed) { std::future::pending().await } else { Ok(body.into()) }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn handover_that_times_out_is_incomplete() {
    for (is_cut, inheritance, expected) in
        [(false, Handover::HandedOver, history(2)), (true, Handover::CutOff, history(1))]
    {
        let leader = rig([LeaderReply::Fails]).controller;
        leader.histories.seed(&"known".into(), history(1));
        let source = Source::new(Arc::clone(&leader));
        source.leads();
        let line = Arc::new(LeaderConnection { source: Arc::clone(&source), is_cut: AtomicBool::new(false) });
        let mut standby = rig([LeaderReply::Fails]);
        standby.follower = Follower::new(Parts {
            link: Arc::clone(&line) as _,
            identity: "b".to_owned(),
            leader_state: standby.leader_state.subscribe(),
            controller: Arc::clone(&standby.controller),
            telemetry: standby.telemetry.clone(),
            lease: "concertina".into(),
        });
        standby.follow(5.0).await;
        line.is_cut.store(is_cut, Ordering::Relaxed);
        // The last sync changes the history.
        leader.histories.seed(&"known".into(), history(2));
        let ending = async { timeout(Duration::from_millis(1500), source.conclude()).await.is_err() };
        let (timed_out, ()) = futures::future::join(ending, standby.follow(2.0)).await;
        assert_eq!(timed_out, is_cut);
        let Harness { follower, controller, .. } = standby;
        assert_eq!(follower.take_over(4), inheritance);
        let inherited = (inheritance == Handover::CutOff).then(|| controller.clock.now());
        assert_eq!(controller.histories.get("known"), History { inherited, ..expected });
    }
}

#[tokio::test(start_paused = true)]
async fn leader_waits_for_recent_standbys_only() {
    let controller = rig([LeaderReply::Fails]).controller;
    let source = Source::new(Arc::clone(&controller));
    source.leads();
    respond(&source, "standby=b").await;
    tokio::time::sleep(Duration::from_millis(3100)).await;
    let started = Instant::now();
    source.conclude().await;
    assert_eq!(started.elapsed(), Duration::ZERO);

    let source = Source::new(controller);
    source.leads();
    let upto = part(&respond(&source, "").await).upto;
    let asking = {
        let source = Arc::clone(&source);
        tokio::spawn(async move { respond(&source, &format!("since={upto}&wait=5s")).await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    source.lost();
    assert_eq!(asking.await.unwrap().0, 503);
    assert_eq!(started.elapsed(), Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_histories_arrive_in_small_parts() {
    let controller = rig([LeaderReply::Fails]).controller;
    let source = Source::new(Arc::clone(&controller));
    source.leads();
    let at = |second: i64| Timestamp::from_second(second * 3).unwrap();
    let entries = (0..200).map(|second| ScaleEvent::new(at(second), i32::MAX));
    let long = History { scale_ups: entries.collect(), ..History::default() };
    for number in 0..10_000 {
        controller.histories.seed(&format!("{number:036}").into(), long.clone());
    }
    let (mut query, mut count, mut parts) = (String::new(), 0, 0);
    loop {
        let answer = respond(&source, &query).await;
        assert!(answer.1.len() < 6 << 20, "{}", answer.1.len());
        let part = part(&answer);
        count += part.histories.len();
        parts += 1;
        query = format!("since={}", part.upto);
        if !part.more {
            break;
        }
    }
    assert_eq!(count, 10_000);
    assert!(parts > 1, "{parts}");
}
