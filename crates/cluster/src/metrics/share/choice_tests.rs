use super::*;

const PERIOD: Duration = Duration::from_secs(15);
const AGE: Duration = Duration::from_secs(5);
const LIMIT: usize = 64 << 20;

/// A namespace in which each HPA sends one query per period.
struct Namespace {
    choice: Choice,
    now: Instant,
    pods: usize,
    each: usize,
}

impl Namespace {
    /// Creates a namespace of `pods` pods. Each HPA selects `each` pods.
    fn new(pods: usize, each: usize) -> Self {
        let now = Instant::now();
        Self { choice: Choice::new(now, AGE, PERIOD), now, pods, each }
    }

    /// Runs one period in which `hpas` HPAs send a query each, `apart` milliseconds apart. Returns the number of lists
    /// by selector and the number of lists of the namespace.
    fn period(&mut self, hpas: u64, apart: u64) -> (u32, u32) {
        let (mut by_selector, mut whole) = (0, 0);
        let mut listed: Option<Instant> = None;
        for hpa in 0..hpas {
            let now = self.now + Duration::from_millis(hpa * apart);
            match self.choice.asked(now, self.pods, LIMIT) {
                ListMode::Selectors => by_selector += 1,
                ListMode::Namespace if listed.is_some_and(|at| now <= at + AGE) => {}
                ListMode::Namespace => {
                    listed = Some(now);
                    whole += 1;
                    self.choice.listed(self.pods * 449, self.pods);
                }
            }
            self.choice.answered(self.each * 449);
        }
        self.now += PERIOD;
        (by_selector, whole)
    }
}

#[tokio::test(start_paused = true)]
async fn namespace_is_never_listed_for_one_hpa() {
    let mut namespace = Namespace::new(1, 1);
    for _ in 0..10 {
        assert_eq!(namespace.period(1, 0), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_hpas_share_from_the_first_period_on() {
    let mut namespace = Namespace::new(60, 3);
    assert_eq!(namespace.period(20, 10), (1, 1));
    assert_eq!(namespace.period(20, 10), (0, 1));
    assert_eq!(namespace.period(20, 10), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn hpas_further_apart_than_the_age_share_nothing() {
    let mut namespace = Namespace::new(6, 3);
    for _ in 0..10 {
        assert_eq!(namespace.period(2, 7_000), (2, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn few_pods_are_not_selected_from_a_list_of_many() {
    let mut namespace = Namespace::new(20_000, 3);
    for _ in 0..10 {
        assert_eq!(namespace.period(5, 10), (5, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn small_change_of_cost_does_not_change_the_mode() {
    // Ten concurrent HPAs save nine requests. The cost of nine requests equals that of a list of `even` pods.
    let even = usize::try_from(9 * REQUEST / 449).unwrap();
    let mut namespace = Namespace::new(even, 0);
    assert_eq!(namespace.period(10, 10), (10, 0));
    // With two fifths fewer pods, the list is cheaper by more than the threshold.
    namespace.pods = even * 3 / 5;
    namespace.period(10, 10);
    assert_eq!(namespace.period(10, 10), (0, 1));
    // With the initial number of pods, the mode does not change back.
    namespace.pods = even;
    for _ in 0..3 {
        assert_eq!(namespace.period(10, 10), (0, 1));
    }
    // With 1.5 times the initial number of pods, the HPAs query separately after a period.
    namespace.pods = even * 3 / 2;
    namespace.period(10, 10);
    assert_eq!(namespace.period(10, 10), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn sharing_ends_when_only_one_hpa_is_left() {
    let mut namespace = Namespace::new(500, 3);
    namespace.period(50, 10);
    assert_eq!(namespace.period(50, 10), (0, 1));
    assert_eq!(namespace.period(1, 0), (0, 1));
    assert_eq!(namespace.period(1, 0), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn namespace_is_not_listed_when_the_response_might_be_too_large() {
    let now = Instant::now();
    let mut choice = Choice::new(now, AGE, PERIOD);
    for _ in 0..100 {
        assert_eq!(choice.asked(now, 100, 512 * 199), ListMode::Selectors);
    }
    assert_eq!(choice.asked(now, 100, 512 * 200), ListMode::Namespace);
}

#[tokio::test(start_paused = true)]
async fn failed_lists_pause_sharing_for_growing_times_until_one_succeeds() {
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
        assert_eq!(namespace.choice.asked(until, 60, LIMIT), ListMode::Namespace);
    }
    assert_eq!(namespace.period(20, 10), (0, 1));
    assert!(namespace.choice.failed(namespace.now));
}

#[tokio::test(start_paused = true)]
async fn choice_is_idle_after_two_periods_without_a_query() {
    let mut namespace = Namespace::new(6, 3);
    namespace.period(1, 0);
    assert!(!namespace.choice.is_idle(namespace.now + PERIOD));
    assert!(namespace.choice.is_idle(namespace.now + PERIOD + Duration::from_millis(1)));
}
