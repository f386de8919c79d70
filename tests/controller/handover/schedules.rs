//! Random schedules: labels that change, a webhook that the API server reaches or not, objects of the guard that
//! break, and replicas that die and return, while the built-in controller runs.
//!
//! Three rules hold in each schedule: nothing of ours is written without the label, two controllers never take
//! turns faster than the handover permits, and every HPA always has a writer.

use std::time::Duration;

use super::rig::{BuiltIn, Guarded, Replica, label, namespace_label, ours, theirs};
use super::{NAMES, move_for, stage};
use crate::support::Fixture;

const PERIOD: Duration = Duration::from_secs(15);
const LEASE: Duration = Duration::from_secs(15);
/// A request in flight, and the event of the watch about it.
const IN_FLIGHT: Duration = Duration::from_millis(50);
/// The silence before a write after one of the other controller.
const SETTLE: Duration = Duration::from_secs(1);
/// The metrics change every five seconds.
const SLACK: Duration = Duration::from_secs(6);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The expected state of the world.
struct World {
    stage: Fixture,
    guard: std::sync::Arc<Guarded>,
    leader: Option<Replica>,
    standby: Option<Replica>,
    /// Whether the API server reaches the webhook.
    is_reached: bool,
    /// Whether the objects of the guard are right. Each check of the leader finds their state.
    is_configured: bool,
    /// Times at which an HPA came out of scope, and in scope, by name.
    labels: Vec<(Duration, &'static str, bool)>,
    /// When the last leader crashed.
    died: Option<Duration>,
    /// When leaders crashed.
    deaths: Vec<Duration>,
    /// What happened, for failures.
    log: Vec<String>,
}

impl World {
    fn serve(&self) {
        let serving =
            self.standby.as_ref().or(self.leader.as_ref()).filter(|_| self.is_reached && self.is_configured);
        self.guard.serve(serving);
        self.guard.report_to(self.leader.as_ref().filter(|_| self.standby.is_some()));
        let now = self.stage.now();
        let is_led =
            self.leader.is_some() || self.died.is_some_and(|died| now.checked_sub(died).unwrap() < LEASE);
        self.guard.lead(is_led);
        if let Some(leader) = &self.leader {
            if self.is_configured { leader.prove() } else { leader.disprove() }
        }
    }

    fn is_labelled(&self, name: &str) -> bool {
        self.labels.iter().rev().find(|(_, named, _)| *named == name).is_some_and(|(_, _, on)| *on)
    }

    fn step(&mut self, random: &mut Random) {
        let now = self.stage.now();
        let lease_is_over = self.died.is_some_and(|died| now.checked_sub(died).unwrap() >= LEASE);
        if self.leader.is_none()
            && lease_is_over
            && let Some(next) = self.standby.take()
        {
            next.lead(self.died.map(|died| now.checked_sub(died).unwrap()));
            self.leader = Some(next);
        }
        let choice = random.below(10);
        match choice {
            0..=3 => {
                let name = NAMES[usize::try_from(random.below(3)).unwrap()];
                let on = !self.is_labelled(name);
                label(&self.stage, name, on.then_some("concertina"));
                self.labels.push((now, name, on));
            }
            4 => {
                // A label of the namespace for a moment.
                namespace_label(&self.stage, Some("concertina"));
                namespace_label(&self.stage, None);
            }
            5 => self.is_reached = !self.is_reached,
            6 => self.is_configured = !self.is_configured,
            7 => {
                if let Some(leader) = self.leader.take() {
                    leader.kill();
                    self.died = Some(now);
                    self.deaths.push(now);
                }
            }
            _ => {
                if self.standby.is_none() {
                    self.standby = Some(Replica::start(&self.stage));
                }
            }
        }
        self.serve();
        let states = self.leader.as_ref().map(|leader| NAMES.map(|name| leader.state(name)));
        self.log.push(format!(
            "{now:?} {choice} reached {} right {} {states:?}",
            self.is_reached, self.is_configured
        ));
    }
}

async fn run(seed: u64) {
    let mut random = Random(seed);
    let stage = stage(&NAMES);
    let first = Replica::start(&stage);
    first.prove();
    let guard = Guarded::by(&first);
    let _built_in = BuiltIn::start(&stage, Some(guard.clone()));
    first.lead(None);
    let mut world = World {
        stage,
        guard,
        leader: Some(first),
        standby: None,
        is_reached: true,
        is_configured: true,
        labels: Vec::new(),
        died: None,
        deaths: Vec::new(),
        log: Vec::new(),
    };
    move_for(&world.stage, &NAMES, 30).await;
    // A label that changes at the time of a sync would make its status write conflict, and delay it by a period.
    world.stage.pass(1.7).await;
    for _ in 0..40 {
        world.step(&mut random);
        let pause = 5 * u32::try_from(random.below(8)).unwrap();
        for _ in 0..pause / 5 {
            move_for(&world.stage, &NAMES, 5).await;
            world.serve();
        }
    }
    for name in NAMES {
        check(&world, name, seed);
    }
}

fn check(world: &World, name: &str, seed: u64) {
    let (ours, theirs) = (ours(&world.stage, name), theirs(&world.stage, name));
    // Nothing of ours without the label, except for the moments of the namespace's label, which ends first.
    let mut since_off = Some(Duration::ZERO);
    let mut labels = world.labels.iter().filter(|(_, named, _)| *named == name).peekable();
    for at in &ours {
        while let Some((changed, _, on)) = labels.next_if(|(changed, ..)| changed <= at) {
            since_off = (!on).then_some(*changed);
        }
        if let Some(off) = since_off {
            assert!(
                (*at).checked_sub(off).unwrap() <= IN_FLIGHT,
                "seed {seed}: {name} written at {at:?}, without a label since {off:?}"
            );
        }
    }
    // After a write of the built-in controller the next one of ours is either in flight, or later by the silence.
    for at in &theirs {
        if let Some(next) = ours.iter().find(|next| *next > at) {
            let gap = (*next).checked_sub(*at).unwrap();
            assert!(
                gap <= IN_FLIGHT || gap >= SETTLE.min(PERIOD),
                "seed {seed}: {name} at {at:?}, ours {gap:?} later"
            );
        }
    }
    let mut all: Vec<_> = ours.iter().chain(&theirs).copied().collect();
    all.sort_unstable();
    for pair in all.windows(2) {
        let gap = pair[1].checked_sub(pair[0]).unwrap();
        // After a crash the built-in controller may have been refused until the end of the Lease.
        let died = world.deaths.iter().any(|died| *died + LEASE >= pair[0] && *died <= pair[1]);
        let longest = 2 * PERIOD + SLACK + if died { LEASE } else { Duration::ZERO };
        let log = world.log.join("\n");
        assert!(gap <= longest, "{log}\nseed {seed}: {name} has no writer from {:?} for {gap:?}", pair[0]);
    }
}

/// Number of schedules, or the value of `HANDOVER_SEEDS`.
fn seeds() -> u64 {
    std::env::var("HANDOVER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(10)
}

#[tokio::test(start_paused = true)]
async fn no_two_writers_and_always_one() {
    for seed in 0..seeds() {
        run(seed).await;
    }
}
