//! Limits of rules hold under replays.

use std::collections::BTreeMap;

use tidegate_schemas::{ids::SubmissionId, records::ItemEntry};
use tidegate_store::tables::items::{
    items::Item,
    limits::{Cooldown, RuleDay},
};

use super::world::{World, entry_of, org, post, user};

const AUTOMATIC: &str = "action.automatic";

fn rule(limits: &str) -> String {
    format!(
        "rule: limited\nstatus: live\nitem_types: [post]\nwhen: {{text: {{in: [text], words: [limitme]}}}}\n\
         actions: [ban]\nlimits: {limits}\n"
    )
}

fn post_by(author: &str, id: &str) -> ItemEntry {
    let data = serde_json::json!({"text": "limitme", "author": {"typeId": "user", "id": author}});
    entry_of(&post(id), data.to_string())
}

/// Sends each item in its own record, so they are processed concurrently.
async fn submit(world: &World, entries: Vec<ItemEntry>) -> Vec<Item> {
    let sent_ids: Vec<_> = entries.iter().map(|entry| (entry.key(), entry.submission_id)).collect();
    for entry in entries {
        world.submit(vec![entry]).await;
    }
    let mut rows = Vec::new();
    for (item, submission) in sent_ids {
        rows.push(world.wait_until_evaluated(&item, submission).await);
    }
    rows
}

fn suppression(row: &Item) -> Option<String> {
    let matched_rules: Vec<serde_json::Value> = serde_json::from_str(&row.matched).unwrap();
    assert_eq!(matched_rules.len(), 1, "a rule that may not act still matches");
    matched_rules[0]["suppressed"].as_str().map(str::to_owned)
}

/// Counts items and actions by the day of their append, because a test may run over midnight.
fn days(rows: &[Item]) -> BTreeMap<i64, (usize, usize)> {
    let mut days = BTreeMap::new();
    for row in rows {
        let (total, acted): &mut (usize, usize) = days.entry(row.append_ms.day()).or_default();
        *total += 1;
        *acted += usize::from(suppression(row).is_none());
    }
    days
}

async fn count_taken(world: &World, day: i64) -> i64 {
    world.rows::<RuleDay>(&(org(), "limited".into(), day)).await.pop().map_or(0, |row| row.taken)
}

#[tokio::test(flavor = "multi_thread")]
async fn daily_limit_bounds_the_actions_of_a_rule() {
    const LIMIT: usize = 5;
    let mut world = World::started().await;
    world.configure(&rule("{actions_per_day: 5}"), false).await;
    let rows = submit(&world, (0..40).map(|nth| post_by("u1", &format!("p{nth}"))).collect()).await;
    let mut expected_actions = 0;
    for (day, (all, acted)) in days(&rows) {
        assert_eq!(acted, all.min(LIMIT));
        assert_eq!(count_taken(&world, day).await, i64::try_from(acted).unwrap(), "no place is wasted");
        expected_actions += acted;
    }
    assert!(rows.iter().filter_map(suppression).all(|why| why == "limit"));
    world.drain().await;
    assert_eq!(world.events(AUTOMATIC).await.len(), expected_actions);
}

#[tokio::test(flavor = "multi_thread")]
async fn cooldown_does_not_use_up_the_daily_limit() {
    let mut world = World::started().await;
    world.configure(&rule("{actions_per_day: 100, per_user_cooldown: 30d}"), false).await;
    let mut entries: Vec<_> = (0..20).map(|nth| post_by("u1", &format!("p{nth}"))).collect();
    entries.push(post_by("u2", "q"));
    let first = submit(&world, vec![post_by("u1", "first")]).await;
    assert_eq!(suppression(&first[0]), None);
    let rows = submit(&world, entries).await;
    let (other_row, rows) = rows.split_last().unwrap();
    assert_eq!(suppression(other_row), None, "the cooldown of another user is separate");
    assert!(rows.iter().all(|row| suppression(row).as_deref() == Some("cooldown")));
    let cooldowns = world.rows::<Cooldown>(&(org(), "limited".into(), user("u1"))).await;
    assert_eq!(cooldowns[0].holder, first[0].submission_id);
    let mut used_places = 0;
    for day in days(rows).keys().chain(days(&first).keys()).collect::<std::collections::BTreeSet<_>>() {
        used_places += count_taken(&world, *day).await;
    }
    assert_eq!(used_places, 2);
    world.drain().await;
    assert_eq!(world.events(AUTOMATIC).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_with_an_alarm_stops_until_its_document_changes() {
    let mut world = World::started().await;
    world.configure(&rule("{alarm_per_hour: 3}"), false).await;
    let rows = submit(&world, (0..10).map(|nth| post_by("u1", &format!("p{nth}"))).collect()).await;
    // Ten matches exceed the threshold even if they are spread over two hours.
    let acted = rows.iter().filter(|row| suppression(row).is_none()).count();
    assert!((3..=6).contains(&acted), "{acted}");
    let last = submit(&world, vec![post_by("u2", "last")]).await;
    assert_eq!(suppression(&last[0]).as_deref(), Some("alarm"));
    // Matches of the earlier version in the same hour do not count for the changed rule.
    world.configure(&rule("{alarm_per_hour: 3}").replace("words: [", "words: [nothing, "), false).await;
    let mended = submit(&world, vec![post_by("u2", "mended")]).await;
    assert_eq!(suppression(&mended[0]), None);
    world.drain().await;
    assert_eq!(world.events(AUTOMATIC).await.len(), acted + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn alarm_also_counts_matches_outside_the_rollout() {
    let mut world = World::started().await;
    world.configure(&rule("{alarm_per_hour: 3}\nrollout: {percent: 0}"), false).await;
    // Ten matches exceed the threshold even if they are spread over two hours.
    let rows = submit(&world, (0..10).map(|nth| post_by("u1", &format!("p{nth}"))).collect()).await;
    let out = rows.iter().filter(|row| suppression(row).as_deref() == Some("rollout")).count();
    let alarmed = rows.iter().filter(|row| suppression(row).as_deref() == Some("alarm")).count();
    assert!((3..=6).contains(&out) && out + alarmed == 10, "{out} {alarmed}");
    world.drain().await;
    assert_eq!(world.events(AUTOMATIC).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_acts_only_on_items_within_the_limit() {
    let mut first = World::started().await;
    first.configure(&rule("{actions_per_day: 3, per_user_cooldown: 30d}"), false).await;
    // Two items per user, so both limits refuse some.
    let entries = (0..12).map(|nth| post_by(&format!("u{}", nth % 6), &format!("p{nth}"))).collect();
    let rows = submit(&first, entries).await;
    let allowed = rows.iter().filter(|row| suppression(row).is_none()).count();
    let mut second = first.image().await;
    first.drain().await;
    // A second evaluation would act on all items.
    second.configure(&rule("{}"), false).await;
    second.start();
    let mut markers: Vec<(String, SubmissionId)> = Vec::new();
    for nth in 0..12 {
        let id = format!("p{nth}");
        markers.push((id.clone(), second.submit_text(&id, "good morning").await));
    }
    for (id, marker) in markers {
        second.wait_until_evaluated(&post(&id), marker).await;
    }
    second.drain().await;
    let events = first.events(AUTOMATIC).await;
    assert_eq!(events.len(), allowed);
    assert_eq!(second.events(AUTOMATIC).await, events);
}

/// Both items have taken a place before either has a plan, as after a kill in between.
#[tokio::test(flavor = "multi_thread")]
async fn reevaluated_item_uses_a_place_and_keeps_its_cooldown() {
    use tidegate_moderation::rules::limits::{
        CooldownRequest, LimitPeriod, PeriodUnit, take_cooldown, take_places,
    };
    let mut world = World::new().await;
    world.configure(&rule("{actions_per_day: 2, per_user_cooldown: 30d}"), false).await;
    let entry = post_by("u1", "p1");
    let submission = entry.submission_id;
    world.submit(vec![entry]).await;
    let store = &world.deps.store;
    let at = tidegate_schemas::ids::Millis::now();
    let day = LimitPeriod::of(&org(), &"limited".into(), PeriodUnit::Day, at);
    assert_eq!(take_places(store, &day, 2, 1, None).await.unwrap().0, 1);
    let rule_id = "limited".into();
    let (org, user) = (org(), user("u1"));
    let asker = CooldownRequest { org: &org, rule: &rule_id, user: &user, holder: submission, at };
    assert!(take_cooldown(store, &asker, at.plus(std::time::Duration::from_secs(86_400))).await.unwrap());
    world.start();
    let row = world.wait_until_evaluated(&post("p1"), submission).await;
    assert_eq!(suppression(&row), None);
    let later_rows = submit(&world, vec![post_by("u2", "p2")]).await;
    // On the same day the unused place is missing: at times too few actions, never too many.
    let same_day = later_rows[0].append_ms.day() == at.day();
    assert_eq!(suppression(&later_rows[0]), same_day.then(|| "limit".to_owned()));
    world.drain().await;
}
