//! The schedule of a run, drawn from a seed.

use std::time::Duration;

use crate::many_seeds::Rng;

/// The names of the HPAs and of their targets.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// An action of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Sets or removes the label of an HPA.
    Label(usize, Option<&'static str>),
    /// Sets or removes the label of the namespace.
    LabelNamespace(Option<&'static str>),
    /// Deletes an HPA, and creates it again without a label.
    Recreate(usize),
    /// Changes whether an API server reaches the webhook.
    Reach(usize, bool),
    /// The built-in loop connects to this API server.
    Connect(usize),
    /// Changes the configuration of the webhook.
    Edit(Edit),
    /// The leader dies without releasing its Lease.
    KillLeader,
    /// All replicas die.
    KillAll,
    /// A replica starts.
    Start,
    /// The Lease cannot be read or written for this number of seconds.
    LoseLease(u64),
    /// A client, as the user of the built-in loop, sends a dry run of a write for an HPA (first number) to an API
    /// server (second number).
    DryRun(usize, usize),
    /// Changes whether the built-in loop writes as the user that the webhook configuration names, or as an unknown
    /// user.
    Identity(bool),
}

/// A change of the webhook's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    /// The configuration as shipped.
    None,
    /// The configuration is deleted.
    Deleted,
    /// The selector of namespaces selects none.
    NamespaceSelector,
    /// The selector of objects selects none.
    ObjectSelector,
    /// `caBundle` is the authority of another service.
    OtherAuthority,
    /// `clientConfig` names the Service of another program.
    OtherService,
    /// The rule for Scales is missing.
    NoScales,
    /// The rule for statuses is missing.
    NoStatuses,
    /// The condition on users matches none of the built-in users.
    OtherUsers,
    /// A longer time limit. The writes still reach the webhook.
    TimeLimit,
    /// Other labels of the configuration object, which do not weaken the guard.
    ObjectLabel,
}

const EDITS: [Edit; 10] = [
    Edit::Deleted,
    Edit::NamespaceSelector,
    Edit::ObjectSelector,
    Edit::OtherAuthority,
    Edit::OtherService,
    Edit::NoScales,
    Edit::NoStatuses,
    Edit::OtherUsers,
    Edit::TimeLimit,
    Edit::ObjectLabel,
];

/// A schedule and the constants of its run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) hpas: usize,
    /// Delay of each watch event that a replica receives.
    pub(crate) watch_delay: Duration,
    /// Duration of a request. Half of it passes before the server applies the request.
    pub(crate) request: Duration,
    /// The time that the API server waits for a webhook that it does not reach.
    pub(crate) unreached: Duration,
    /// Whether a standby, if any, answers all requests to the webhook. Otherwise, the replicas answer in turn.
    pub(crate) standby_answers: bool,
    /// The actions, each with the time since the previous action.
    pub(crate) actions: Vec<(Duration, Action)>,
}

/// Draws the schedule of a seed.
pub(crate) fn draw(seed: u64) -> Plan {
    let mut rng = Rng::for_purpose(seed, 1);
    let hpas = rng.pick(&[1, 2, 2, 3]);
    let millis = Duration::from_millis;
    let mut plan = Plan {
        hpas,
        watch_delay: millis(rng.pick(&[0, 0, 20, 100, 300])),
        request: millis(rng.pick(&[0, 4, 20, 100])),
        unreached: millis(rng.pick(&[0, 1000])),
        standby_answers: rng.percent(50),
        actions: Vec::new(),
    };
    // Most schedules start as usual, with two replicas and a label.
    let mut start = vec![(1, Action::Start)];
    if rng.percent(70) {
        start.push((1, Action::Start));
    }
    if rng.percent(80) {
        start.push((20, Action::Label(rng.index(hpas), Some("concertina"))));
    }
    plan.actions.extend(start.into_iter().map(|(after, action)| (Duration::from_secs(after), action)));
    for _ in 0..rng.between(4, 9) {
        let gap = match rng.below(20) {
            0..=4 => rng.below(3_000),
            5..=15 => rng.below(35_000),
            16..=17 => rng.between(35_000, 70_000),
            // This pause exceeds the ten periods within which a foreign write is treated as a relapse into a contest.
            _ => rng.between(160_000, 200_000),
        };
        for (number, action) in episode(&mut rng, hpas).into_iter().enumerate() {
            let pause = if number == 0 { gap } else { pause(&mut rng) };
            plan.actions.push((millis(pause), action));
        }
    }
    plan
}

/// The time between two actions of an episode, in milliseconds.
fn pause(rng: &mut Rng) -> u64 {
    let longest = rng.pick(&[1_000, 10_000, 40_000]);
    rng.below(longest)
}

/// Actions that belong together, such as an outage and its end.
fn episode(rng: &mut Rng, hpas: usize) -> Vec<Action> {
    let hpa = rng.index(hpas);
    match rng.below(20) {
        0..=4 => {
            let label =
                rng.pick(&[Some("concertina"), Some("concertina"), None, Some("built-in"), Some("blue")]);
            vec![Action::Label(hpa, label)]
        }
        5 => {
            let flips = rng.between(2, 4);
            (0..flips).map(|flip| Action::Label(hpa, (flip % 2 == 0).then_some("concertina"))).collect()
        }
        6..=7 => vec![Action::LabelNamespace(rng.pick(&[Some("concertina"), None, Some("blue")]))],
        8 => vec![Action::Recreate(hpa), Action::Label(hpa, Some("concertina"))],
        9..=11 => {
            // Another API server may still reach the webhook.
            let (server, is_total) = (rng.index(2), rng.percent(50));
            let mut actions = vec![Action::Reach(server, false)];
            actions.extend(is_total.then_some(Action::Reach(1 - server, false)));
            actions.extend(rng.percent(60).then(|| Action::DryRun(hpa, rng.index(2))));
            actions.extend([Action::Reach(server, true), Action::Reach(1 - server, true)]);
            actions
        }
        12 => vec![Action::Connect(rng.index(2))],
        13..=14 => {
            let mut actions = vec![Action::Edit(rng.pick(&EDITS))];
            actions.extend(rng.percent(30).then_some(Action::Label(hpa, Some("concertina"))));
            actions.push(Action::Edit(Edit::None));
            actions
        }
        15..=16 => {
            let mut actions = vec![rng.pick(&[Action::KillLeader, Action::KillLeader, Action::KillAll])];
            actions.extend(rng.percent(80).then_some(Action::Start));
            actions
        }
        17 => vec![Action::Start],
        18 => vec![Action::LoseLease(rng.between(5, 60))],
        _ => vec![Action::Identity(false), Action::Identity(true)],
    }
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Label(..) => "label",
            Self::LabelNamespace(_) => "label of the namespace",
            Self::Recreate(_) => "recreate",
            Self::Reach(_, true) => "webhook reached",
            Self::Reach(_, false) => "webhook not reached",
            Self::Connect(_) => "built-in loop connects to another API server",
            Self::Edit(Edit::None) => "webhook configuration restored",
            Self::Edit(_) => "webhook configuration edited",
            Self::KillLeader => "leader dies",
            Self::KillAll => "all replicas die",
            Self::Start => "replica starts",
            Self::LoseLease(_) => "Lease unavailable",
            Self::DryRun(..) => "dry run",
            Self::Identity(true) => "built-in loop with its usual user",
            Self::Identity(false) => "built-in loop with an unknown user",
        }
    }
}
