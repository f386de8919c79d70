use super::*;

const PERIOD: Duration = Duration::from_secs(15);
const AGE: Duration = Duration::from_secs(5);
const LIMIT: usize = 64 << 20;

/// A namespace whose HPAs have asked for a few periods.
struct Namespace {
    choice: Choice,
    now: Instant,
    pods: usize,
    each: usize,
}

impl Namespace {
    /// Of so many pods, of which each HPA wants so many.
    fn new(pods: usize, each: usize) -> Self {
        let now = Instant::now();
        Self { choice: Choice::new(now, AGE, PERIOD), now, pods, each }
    }

    /// HPAs ask in a period, each so many milliseconds after the one before. How many lists that took: of selectors,
    /// and of the namespace.
    fn period(&mut self, hpas: u64, apart: u64) -> (u32, u32) {
        let (mut of_selectors, mut of_namespace) = (0, 0);
        let mut listed: Option<Instant> = None;
        for hpa in 0..hpas {
            let now = self.now + Duration::from_millis(hpa * apart);
            match self.choice.asked(now, self.pods, LIMIT) {
                Way::Selectors => of_selectors += 1,
                Way::Namespace if listed.is_some_and(|at| now <= at + AGE) => {}
                Way::Namespace => {
                    listed = Some(now);
                    of_namespace += 1;
                    self.choice.listed(self.pods * 449, self.pods);
                }
            }
            self.choice.answered(self.each * 449);
        }
        self.now += PERIOD;
        (of_selectors, of_namespace)
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_never_listed_for_one_hpa() {
    let mut namespace = Namespace::new(1, 1);
    for _ in 0..10 {
        assert_eq!(namespace.period(1, 0), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn hpas_that_ask_together_share_from_the_first_period_on() {
    let mut namespace = Namespace::new(60, 3);
    assert_eq!(namespace.period(20, 10), (1, 1));
    assert_eq!(namespace.period(20, 10), (0, 1));
    assert_eq!(namespace.period(20, 10), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn two_that_never_meet_within_the_age_share_nothing() {
    let mut namespace = Namespace::new(6, 3);
    for _ in 0..10 {
        assert_eq!(namespace.period(2, 7_000), (2, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_pods_are_not_looked_for_in_a_list_of_many() {
    let mut namespace = Namespace::new(20_000, 3);
    for _ in 0..10 {
        assert_eq!(namespace.period(5, 10), (5, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_change_of_cost_changes_nothing() {
    // Ten HPAs that ask at once save nine requests, as much as the other pods cost here.
    let even = usize::try_from(9 * REQUEST / 449).unwrap();
    let mut namespace = Namespace::new(even, 0);
    assert_eq!(namespace.period(10, 10), (10, 0));
    // A quarter fewer, and it pays.
    namespace.pods = even * 3 / 5;
    namespace.period(10, 10);
    assert_eq!(namespace.period(10, 10), (0, 1));
    // As many as before: it goes on.
    namespace.pods = even;
    for _ in 0..3 {
        assert_eq!(namespace.period(10, 10), (0, 1));
    }
    // Half as many again: a period later each asks for itself.
    namespace.pods = even * 3 / 2;
    namespace.period(10, 10);
    assert_eq!(namespace.period(10, 10), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn hpas_that_go_end_the_sharing_of_the_last() {
    let mut namespace = Namespace::new(500, 3);
    namespace.period(50, 10);
    assert_eq!(namespace.period(50, 10), (0, 1));
    assert_eq!(namespace.period(1, 0), (0, 1));
    assert_eq!(namespace.period(1, 0), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_not_listed_where_the_answer_might_have_no_room() {
    let now = Instant::now();
    let mut choice = Choice::new(now, AGE, PERIOD);
    for _ in 0..100 {
        assert_eq!(choice.asked(now, 100, 512 * 199), Way::Selectors);
    }
    assert_eq!(choice.asked(now, 100, 512 * 200), Way::Namespace);
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_each_asks_for_itself_ever_longer_until_a_list_succeeds() {
    let mut namespace = Namespace::new(60, 3);
    namespace.period(20, 10);
    for minutes in [5, 10, 20, 40, 80, 80] {
        let now = namespace.now;
        assert_eq!(namespace.choice.failed(now), minutes == 5);
        let until = now + Duration::from_mins(minutes);
        while namespace.now + PERIOD < until {
            assert_eq!(namespace.period(20, 10), (20, 0), "{minutes}");
        }
        namespace.now = until;
        assert_eq!(namespace.choice.asked(until, 60, LIMIT), Way::Namespace);
    }
    assert_eq!(namespace.period(20, 10), (0, 1));
    assert!(namespace.choice.failed(namespace.now));
}

#[tokio::test(start_paused = true)]
async fn it_is_idle_when_nobody_has_asked_for_two_periods() {
    let mut namespace = Namespace::new(6, 3);
    namespace.period(1, 0);
    assert!(!namespace.choice.is_idle(namespace.now + PERIOD));
    assert!(namespace.choice.is_idle(namespace.now + PERIOD + Duration::from_millis(1)));
}
