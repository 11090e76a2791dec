//! Gives the oracle wrong observations: it must find each fault and classify it.

use super::*;

fn item(content: Content) -> SentItem {
    let removal = (content == Content::Threat).then_some(Reply::Accepted);
    SentItem {
        user: "u1".to_owned(),
        content,
        reply: Reply::Accepted,
        submission: Some("s".to_owned()),
        removal,
    }
}

fn report(item: &str, report: &str, csam: bool) -> SentReport {
    SentReport {
        item: item.to_owned(),
        user: "u2".to_owned(),
        content: Content::Plain,
        csam,
        reply: Reply::Accepted,
        report: Some(report.to_owned()),
        named: None,
    }
}

fn build_sent_requests() -> SentRequests {
    let threats = [("threat", Content::Threat), ("plain", Content::Plain)];
    let scams = ["scam1", "scam2", "scam3"].map(|id| (id, Content::Scam));
    let decision = Some(("ACCEPT".to_owned(), Reply::Accepted));
    SentRequests {
        items: scams.into_iter().chain(threats).map(|(id, content)| (id.to_owned(), item(content))).collect(),
        reports: vec![
            report("reported", "r1", false),
            report("reported", "r2", false),
            report("worse", "r3", true),
        ],
        appeals: BTreeMap::from([(
            "a1".to_owned(),
            SentAppeal { reply: Reply::Accepted, of_scam: false, decision },
        )]),
        ..SentRequests::default()
    }
}

fn callback(event: &str, kind: &str, item: &str) -> SeenCallback {
    SeenCallback {
        event: event.to_owned(),
        kind: kind.to_owned(),
        item: item.to_owned(),
        body: format!("body of {event}"),
        ..SeenCallback::default()
    }
}

fn scam(event: &str, item: &str) -> SeenCallback {
    SeenCallback { action: SCAM_ACTION.to_owned(), ..callback(event, AUTOMATIC, item) }
}

fn limited(event: &str, action: &str, item: &str) -> SeenCallback {
    SeenCallback {
        action: action.to_owned(),
        user: "u1".to_owned(),
        at: "2026-01-02T03:04:05.000Z".to_owned(),
        ..callback(event, AUTOMATIC, item)
    }
}

fn crossed(event: &str) -> SeenCallback {
    SeenCallback { user: "u1".to_owned(), ..callback(event, CROSSED, "scam3") }
}

fn decided(event: &str, decision: &str) -> SeenCallback {
    let (appeal, decision) = ("a1".to_owned(), decision.to_owned());
    SeenCallback { appeal, decision, ..callback(event, APPEAL, "appealed") }
}

fn removed(event: &str, item: &str) -> SeenCallback {
    SeenCallback { action: REVIEW_ACTION.to_owned(), ..callback(event, DECISION, item) }
}

fn strike(item: &str) -> SeenStrike {
    SeenStrike { user: "u1".to_owned(), item: item.to_owned(), points: 1, reversed: Vec::new() }
}

fn strikes(seen: &mut Observations) -> &mut Vec<SeenStrike> {
    seen.strikes.as_mut().unwrap()
}

fn job(class: &str, item: &str, appeal: Option<&str>, causes: &[(&str, &str)]) -> SeenJob {
    SeenJob {
        class: class.to_owned(),
        item: item.to_owned(),
        appeal: appeal.map(str::to_owned),
        causes: causes.iter().map(|(kind, id)| ((*kind).to_owned(), (*id).to_owned())).collect(),
    }
}

fn build_observations() -> Observations {
    let submitted = |submissions: &[&str]| SeenItem {
        submissions: submissions.iter().map(|id| ((*id).to_owned(), true)).collect(),
    };
    let mut items: BTreeMap<_, _> =
        build_sent_requests().items.into_keys().map(|id| (id, submitted(&["s"]))).collect();
    items.insert("reported".to_owned(), submitted(&["r1", "r2"]));
    items.insert("worse".to_owned(), submitted(&["r3"]));
    Observations {
        items,
        callbacks: vec![
            scam("e1", "scam1"),
            scam("e2", "scam2"),
            scam("e3", "scam3"),
            crossed("e4"),
            decided("e5", "ACCEPT"),
            limited("e6", limits::ONCE, "scam1"),
            removed("e7", "threat"),
        ],
        jobs: vec![
            job("review", "threat", None, &[("rule", "s")]),
            job("review", "reported", None, &[("report", "r1"), ("report", "r2")]),
            job("child_safety", "worse", None, &[("report", "r3")]),
            job("appeal", "appealed", Some("a1"), &[("appeal", "a1")]),
        ],
        strikes: Some(vec![strike("scam1"), strike("scam2"), strike("scam3")]),
        ..Observations::default()
    }
}

/// Counts the faults after `wrong` changed a correct run: (lost, doubled, invented).
fn count_faults(wrong: impl FnOnce(&mut SentRequests, &mut Observations)) -> (usize, usize, usize) {
    let (mut sent, mut seen) = (build_sent_requests(), build_observations());
    wrong(&mut sent, &mut seen);
    let verdict = judge(&sent, &seen);
    (verdict.lost.len(), verdict.doubled.len(), verdict.invented.len())
}

#[test]
fn a_run_without_a_fault_is_clean_and_counted() {
    assert_eq!(judge(&build_sent_requests(), &build_observations()), Verdict::default());
    let expected_counts = Counts {
        acknowledged: 11,
        unanswered: 0,
        deliveries: 7,
        events: 7,
        jobs: 4,
        strikes: 3,
        reversals: 0,
        outcomes: 0,
        own_actions: 0,
        fetched: 0,
    };
    assert_eq!(counts(&build_sent_requests(), &build_observations()), expected_counts);
}

#[test]
fn run_with_few_effects_does_not_suffice() {
    let enough = Counts {
        acknowledged: 50,
        unanswered: 9,
        deliveries: 9,
        events: 4,
        jobs: 4,
        strikes: 4,
        reversals: 1,
        outcomes: 2,
        own_actions: 4,
        fetched: 2,
    };
    assert!(enough.suffice(10).is_ok());
    for too_little in [
        Counts { acknowledged: 49, ..enough },
        Counts { events: 3, ..enough },
        Counts { jobs: 3, ..enough },
        Counts { strikes: 3, ..enough },
        Counts { outcomes: 1, ..enough },
        Counts { own_actions: 3, ..enough },
        Counts { fetched: 1, ..enough },
    ] {
        assert!(too_little.suffice(10).is_err(), "{too_little}");
    }
}

#[test]
fn strike_is_reversed_once_for_an_accepted_appeal() {
    fn against_scam(
        sent: &mut SentRequests,
        seen: &mut Observations,
        decision: &str,
        reply: Reply,
        reversed: &[i64],
    ) {
        let scams = item(Content::Scam);
        sent.items.insert(appealed("a2"), SentItem { user: "u9".to_owned(), ..scams });
        let appeal_decision = Some((decision.to_owned(), reply));
        sent.appeals.insert(
            "a2".to_owned(),
            SentAppeal { reply: Reply::Accepted, of_scam: true, decision: appeal_decision },
        );
        seen.items.insert(appealed("a2"), SeenItem { submissions: BTreeMap::from([("s".to_owned(), true)]) });
        seen.callbacks.push(scam("e20", &appealed("a2")));
        seen.callbacks
            .push(SeenCallback { user: "u9".to_owned(), ..limited("e21", limits::ONCE, &appealed("a2")) });
        seen.callbacks.push(SeenCallback { appeal: "a2".to_owned(), ..decided("e22", decision) });
        seen.jobs.push(job("appeal", &appealed("a2"), Some("a2"), &[("appeal", "a2")]));
        let struck = SeenStrike { user: "u9".to_owned(), ..strike(&appealed("a2")) };
        strikes(seen).push(SeenStrike { reversed: reversed.to_vec(), ..struck });
    }
    let of = |decision, answer, reversed: &[i64]| {
        count_faults(|sent, seen| against_scam(sent, seen, decision, answer, reversed))
    };
    assert_eq!(of("ACCEPT", Reply::Accepted, &[1]), (0, 0, 0));
    assert_eq!(of("ACCEPT", Reply::Accepted, &[]), (1, 0, 0));
    assert_eq!(of("ACCEPT", Reply::Accepted, &[1, 1]), (0, 1, 0));
    assert_eq!(of("ACCEPT", Reply::Accepted, &[2]), (0, 0, 1));
    assert_eq!(of("ACCEPT", Reply::Missing, &[]), (0, 0, 0));
    assert_eq!(of("ACCEPT", Reply::Missing, &[1]), (0, 0, 0));
    assert_eq!(of("REJECT", Reply::Accepted, &[]), (0, 0, 0));
    assert_eq!(of("REJECT", Reply::Accepted, &[1]), (0, 0, 1));
    assert_eq!(count_faults(|_, seen| strikes(seen)[0].reversed.push(1)), (0, 0, 1));
}

#[test]
fn a_decision_on_a_review_job_has_one_event_with_its_action() {
    assert_eq!(count_faults(|_, seen| seen.callbacks.retain(|callback| callback.event != "e7")), (1, 0, 0));
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(removed("e8", "threat"))), (0, 1, 0));
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(removed("e8", "plain"))), (0, 0, 1));
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(removed("e8", "nobody's"))), (0, 0, 1));
    let suspended = SeenCallback { action: THRESHOLD_ACTION.to_owned(), ..removed("e7", "threat") };
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(suspended)), (0, 0, 1));
    // Without an answer it may exist once.
    let unanswered = |sent: &mut SentRequests| {
        sent.items.get_mut("threat").unwrap().removal = Some(Reply::Missing);
    };
    assert_eq!(count_faults(|sent, _| unanswered(sent)), (0, 0, 0));
}

#[test]
fn a_delivery_of_the_same_event_may_repeat() {
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(scam("e1", "scam1"))), (0, 0, 0));
}

#[test]
fn missing_or_unevaluated_item_is_lost() {
    let missing = |_: &mut SentRequests, seen: &mut Observations| drop(seen.items.remove("plain"));
    assert_eq!(count_faults(missing), (2, 0, 0));
    let unevaluated = |_: &mut SentRequests, seen: &mut Observations| {
        seen.items.get_mut("plain").unwrap().submissions.insert("s".to_owned(), false);
    };
    assert_eq!(count_faults(unevaluated), (1, 0, 0));
    let replaced = |_: &mut SentRequests, seen: &mut Observations| {
        seen.items.get_mut("plain").unwrap().submissions = BTreeMap::from([("other".to_owned(), true)]);
    };
    assert_eq!(count_faults(replaced), (1, 0, 0));
}

#[test]
fn a_second_submission_of_one_request_is_doubled() {
    let twice = |_: &mut SentRequests, seen: &mut Observations| {
        seen.items.get_mut("plain").unwrap().submissions.insert("other".to_owned(), true);
    };
    assert_eq!(count_faults(twice), (0, 1, 0));
    let reported = |_: &mut SentRequests, seen: &mut Observations| {
        seen.items.get_mut("worse").unwrap().submissions.insert("other".to_owned(), true);
    };
    assert_eq!(count_faults(reported), (0, 1, 0));
}

#[test]
fn missing_callback_is_lost() {
    assert_eq!(count_faults(|_, seen| drop(seen.callbacks.remove(0))), (1, 0, 0));
}

#[test]
fn two_event_ids_of_one_action_are_doubled() {
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(scam("e9", "scam1"))), (0, 1, 0));
}

#[test]
fn two_bodies_under_one_event_id_are_doubled() {
    let other = SeenCallback { body: "another".to_owned(), ..scam("e1", "scam1") };
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(other)), (0, 1, 0));
}

#[test]
fn event_without_a_cause_is_invented() {
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(scam("e9", "plain"))), (0, 0, 1));
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(scam("e9", "nobody"))), (0, 0, 1));
    let removed = SeenCallback { action: "remove".to_owned(), ..scam("e9", "scam1") };
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(removed)), (0, 0, 1));
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(callback("e9", "news", "plain"))), (0, 0, 1));
}

#[test]
fn missing_strike_is_lost_and_its_threshold_event_invented() {
    assert_eq!(count_faults(|_, seen| drop(strikes(seen).pop())), (1, 0, 1));
}

#[test]
fn extra_strike_is_doubled_or_invented() {
    assert_eq!(count_faults(|_, seen| strikes(seen).push(strike("scam1"))), (0, 1, 0));
    assert_eq!(count_faults(|_, seen| strikes(seen).push(strike("plain"))), (0, 0, 1));
    assert_eq!(count_faults(|_, seen| strikes(seen)[0].points = 2), (0, 0, 1));
}

#[test]
fn unread_strikes_are_not_judged() {
    assert_eq!(count_faults(|_, seen| seen.strikes = None), (0, 0, 0));
}

#[test]
fn a_threshold_is_crossed_once() {
    assert_eq!(count_faults(|_, seen| drop(seen.callbacks.remove(3))), (1, 0, 0));
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(crossed("e9"))), (0, 1, 0));
}

#[test]
fn job_exists_once_with_each_cause_once() {
    // The causes of the report's job are missing, too.
    assert_eq!(count_faults(|_, seen| drop(seen.jobs.remove(1))), (4, 0, 0));
    assert_eq!(count_faults(|_, seen| seen.jobs.push(seen.jobs[3].clone())).1, 3);
    let again = |_: &mut SentRequests, seen: &mut Observations| {
        seen.jobs[1].causes[1] = seen.jobs[1].causes[0].clone();
    };
    assert_eq!(count_faults(again), (1, 1, 0));
    let joined = |_: &mut SentRequests, seen: &mut Observations| {
        seen.jobs[0].causes.push(("rule".to_owned(), "t".to_owned()));
    };
    assert_eq!(count_faults(joined), (0, 1, 0));
    assert_eq!(count_faults(|_, seen| seen.jobs.push(job("review", "plain", None, &[]))), (0, 0, 1));
}

#[test]
fn child_safety_report_opens_no_review_job() {
    let moved = |_: &mut SentRequests, seen: &mut Observations| seen.jobs[2].class = "review".to_owned();
    let (lost, _, invented) = count_faults(moved);
    assert!(lost > 0 && invented > 0);
}

#[test]
fn appeal_decision_has_one_event_with_its_verdict() {
    assert_eq!(count_faults(|_, seen| drop(seen.callbacks.remove(4))), (1, 0, 0));
    assert_eq!(count_faults(|_, seen| seen.callbacks.push(decided("e9", "ACCEPT"))), (0, 1, 0));
    assert_eq!(count_faults(|_, seen| seen.callbacks[4].decision = "REJECT".to_owned()), (0, 0, 1));
    let undecided =
        |sent: &mut SentRequests, _: &mut Observations| sent.appeals.get_mut("a1").unwrap().decision = None;
    assert_eq!(count_faults(undecided), (0, 0, 1));
}

#[test]
fn unacknowledged_item_exists_at_most_once() {
    fn unanswered(sent: &mut SentRequests, _: &mut Observations) {
        let scam = sent.items.get_mut("scam1").unwrap();
        (scam.reply, scam.submission) = (Reply::Missing, None);
    }
    assert_eq!(count_faults(unanswered), (0, 0, 0));
    let none = |sent: &mut SentRequests, seen: &mut Observations| {
        unanswered(sent, seen);
        seen.items.remove("scam1");
        seen.callbacks.retain(|callback| callback.item != "scam1" && callback.kind != CROSSED);
        seen.callbacks.push(limited("e6", limits::ONCE, "scam2"));
        strikes(seen).retain(|strike| strike.item != "scam1");
    };
    assert_eq!(count_faults(none), (0, 0, 0));
    let twice = |sent: &mut SentRequests, seen: &mut Observations| {
        unanswered(sent, seen);
        seen.callbacks.push(scam("e9", "scam1"));
    };
    assert_eq!(count_faults(twice), (0, 1, 0));
}

#[test]
fn unsent_item_is_invented() {
    let stranger = |_: &mut SentRequests, seen: &mut Observations| {
        seen.items.insert("stranger".to_owned(), SeenItem::default());
    };
    assert_eq!(count_faults(stranger), (0, 0, 1));
}

#[test]
fn delivery_faults_are_reported() {
    assert_eq!(count_faults(|_, seen| seen.unsettled.push("held".to_owned())), (1, 0, 0));
    assert_eq!(count_faults(|_, seen| seen.dead_letters.push("items".to_owned())), (1, 0, 0));
    assert_eq!(count_faults(|_, seen| seen.unsigned = 1), (0, 0, 1));
}

#[test]
fn a_verdict_shows_its_numbers_first() {
    let (sent, mut seen) = (build_sent_requests(), build_observations());
    seen.callbacks.remove(0);
    let text = judge(&sent, &seen).to_string();
    assert!(text.starts_with("the oracle found 1 lost, 0 doubled, 0 invented\n  lost: events of"), "{text}");
}

/// Adds `scams` scams, each with an event of `action`.
fn flood_of(
    sent: &mut SentRequests,
    seen: &mut Observations,
    scams: usize,
    action: &str,
    user: impl Fn(usize) -> String,
) {
    for nth in 0..scams {
        let (id, user) = (format!("extra{nth}"), user(nth));
        let extra =
            SentItem { user: user.clone(), reply: Reply::Missing, submission: None, ..item(Content::Scam) };
        sent.items.insert(id.clone(), extra);
        let at = format!("2026-01-02T03:04:05.{nth:03}Z");
        seen.callbacks.push(SeenCallback { user, at, ..limited(&format!("x{nth}"), action, &id) });
    }
}

#[test]
fn daily_limit_is_never_exceeded() {
    let of = |scams| {
        move |sent: &mut SentRequests, seen: &mut Observations| {
            flood_of(sent, seen, scams, limits::DAILY, |nth| format!("v{nth}"));
        }
    };
    assert_eq!(count_faults(of(limits::PER_DAY)), (0, 0, 0));
    assert_eq!(count_faults(of(limits::PER_DAY + 1)), (0, 1, 0));
    let next_day = |sent: &mut SentRequests, seen: &mut Observations| {
        of(limits::PER_DAY + 1)(sent, seen);
        seen.callbacks.last_mut().unwrap().at = "2026-01-03T00:00:00.000Z".to_owned();
    };
    assert_eq!(count_faults(next_day), (0, 0, 0));
}

#[test]
fn cooldown_action_is_taken_once_for_a_user() {
    let twice = |_: &mut SentRequests, seen: &mut Observations| {
        seen.callbacks.push(limited("e9", limits::ONCE, "scam2"));
    };
    assert_eq!(count_faults(twice), (0, 1, 0));
    assert_eq!(count_faults(|_, seen| drop(seen.callbacks.pop())), (1, 0, 0));
    let plain = |_: &mut SentRequests, seen: &mut Observations| {
        seen.callbacks.push(limited("e9", limits::DAILY, "plain"));
    };
    assert_eq!(count_faults(plain), (0, 0, 1));
}

#[test]
fn window_matches_only_when_full_and_misses_no_item() {
    // The extra scams have only events of the window, so other faults are ignored.
    let count_window_faults = |wrong: &dyn Fn(&mut SentRequests, &mut Observations)| {
        let (mut sent, mut seen) = (build_sent_requests(), build_observations());
        wrong(&mut sent, &mut seen);
        let verdict = judge(&sent, &seen);
        let of = |lines: &[String]| lines.iter().filter(|line| line.contains(limits::FLOOD)).count();
        (of(&verdict.lost), of(&verdict.doubled), of(&verdict.invented))
    };
    let of = |scams: usize, acted: usize| {
        move |sent: &mut SentRequests, seen: &mut Observations| {
            flood_of(sent, seen, scams, limits::FLOOD, |_| "v".to_owned());
            for nth in 0..scams {
                sent.items.get_mut(&format!("extra{nth}")).unwrap().reply = Reply::Accepted;
            }
            seen.callbacks.truncate(7 + acted);
        }
    };
    assert_eq!(count_window_faults(&of(limits::FULL - 1, 0)), (0, 0, 0));
    assert_eq!(count_window_faults(&of(limits::FULL - 1, 1)), (0, 0, 1), "the window was not full");
    assert_eq!(count_window_faults(&of(limits::FULL, 1)), (0, 0, 0));
    assert_eq!(
        count_window_faults(&of(limits::FULL, 0)),
        (1, 0, 0),
        "the item that fills the window is missed"
    );
    assert_eq!(count_window_faults(&of(limits::FULL + 2, 2)), (1, 0, 0), "one of three events is missing");
    assert_eq!(
        count_window_faults(&of(limits::FULL, limits::FULL)),
        (0, 0, 0),
        "a replay may count all items"
    );
    let again = |sent: &mut SentRequests, seen: &mut Observations| {
        of(limits::FULL, 1)(sent, seen);
        seen.callbacks.push(SeenCallback { user: "v".to_owned(), ..limited("x9", limits::FLOOD, "extra0") });
    };
    assert_eq!(count_window_faults(&again), (0, 1, 0));
}
