//! Decisions on related items of a job: its author and the context items.

use serde_json::{Value, json};
use tidegate_moderation::{
    jobs::{stored_decision::Parameters, summary},
    review::decisions::{self, DecisionRefusal, DecisionRequest, RelatedRequest},
};
use tidegate_schemas::{
    ids::{ItemKey, Millis},
    records::{Appeal, ContextItem, Decision, Mention, Report, Variant, Verdict},
};
use tidegate_store::tables::{
    items::strikes::{ActionByItem, Strike, StrikeReversal},
    review::{jobs::Job, reports::ReporterFinding},
};
use tidegate_stream::Topic;

use super::{
    reviews::{appeal, claim, decide, report, request},
    world::{SHORT, World, authorize, entry, org, post, user},
};

const DECIDED: &str = "decision.moderator";

fn context_item(item: &ItemKey, author: &str) -> ContextItem {
    let data = json!({"text": "me too", "author": {"typeId": "user", "id": author}});
    ContextItem {
        type_id: item.type_id.clone(),
        id: item.id.clone(),
        type_version: None,
        variant: Variant::Original,
        data: data.to_string().into(),
        fault: None,
        as_sent: None,
    }
}

/// Reports p1 of u1, with p2 of u2 in its thread and p3 of u3 beside it, and claims the job.
async fn open_reported_job(world: &World) -> Job {
    let report = Report {
        thread: vec![context_item(&post("p2"), "u2")],
        reported_in_thread: vec![post("p4")],
        additional: vec![context_item(&post("p3"), "u3")],
        ..report(world.version().await, 1, "hello", false)
    };
    world.append(Topic::Reports, &post("p1").log_key(&org()), &report).await;
    claim(world, "default").await
}

fn related_request(item: ItemKey, actions: &[&str]) -> RelatedRequest {
    RelatedRequest {
        item,
        actions: actions.iter().map(|action| (*action).into()).collect(),
        parameters: Parameters::new(),
        policies: Vec::new(),
    }
}

async fn send(world: &World, job: &Job, request: &DecisionRequest) -> Result<(), DecisionRefusal> {
    let deps = world.moderation();
    decisions::decide(&deps, &authorize(&deps.store, job.job_id).await, request, SHORT, Millis::now())
        .await
        .unwrap()
        .map(drop)
}

/// Waits for this number of callbacks of decisions.
async fn callback_bodies(world: &World, count: usize) -> Vec<Value> {
    world
        .wait_for("the callbacks of the decision", async || {
            let of_decision = world.callbacks().await.into_iter().filter(|it| it.event_type == DECIDED);
            let bodies: Vec<Value> =
                of_decision.map(|it| serde_json::from_slice(&it.body).unwrap()).collect();
            (bodies.len() == count).then_some(bodies)
        })
        .await
}

async fn strikes(world: &World, of: &str) -> Vec<i64> {
    world.rows::<Strike>(&(org(), user(of))).await.into_iter().map(|strike| strike.points).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_acts_on_related_items_once_under_replay() {
    let mut world = World::started().await;
    let job = open_reported_job(&world).await;
    let decision = DecisionRequest {
        related: vec![
            related_request(user("u1"), &["limit_reach"]),
            related_request(post("p2"), &["ban", "limit_reach", "limit_reach"]),
        ],
        ..request(&job, Verdict::Act, &["limit_reach"])
    };
    send(&world, &job, &decision).await.unwrap();
    let bodies = callback_bodies(&world, 4).await;
    let acted: Vec<_> = bodies.iter().map(|body| (&body["item"]["id"], &body["action"]["id"])).collect();
    for (item, action) in [("p1", "limit_reach"), ("u1", "limit_reach"), ("p2", "ban"), ("p2", "limit_reach")]
    {
        assert!(acted.contains(&(&item.into(), &action.into())), "{item} {action}: {acted:?}");
    }
    for body in &bodies {
        assert_eq!(body["decision"], bodies[0]["decision"], "all callbacks belong to one decision");
        let is_own = body["item"]["id"] == "p1";
        assert_eq!(body["custom"].get("reportHistory").is_some(), is_own, "the reports are about p1: {body}");
        let author = if body["item"]["id"] == "p2" { "u2" } else { "u1" };
        assert_eq!(body["creator"]["id"], author, "{body}");
        assert_eq!(body["userStrikeCount"], if author == "u1" { 2 } else { 1 }, "{body}");
    }
    let ofp2 = json!({
        "item": {"typeId": "post", "id": "p2"}, "actions": [{"id": "ban"}, {"id": "limit_reach"}], "policies": [],
    });
    assert_eq!(bodies[0]["decision"]["related"][1], ofp2);

    // The scanner crashed after it appended, and appends again.
    let appended = world.tail(Topic::Decisions).await;
    let record: Decision = appended[0].decode().unwrap();
    world.append(Topic::Decisions, &job.item.log_key(&org()), &record).await;
    callback_bodies(&world, 8).await;
    world.drain().await;
    assert_eq!(world.events(DECIDED).await.len(), 4);
    assert_eq!((strikes(&world, "u1").await, strikes(&world, "u2").await), (vec![1, 1], vec![1]));
    let taken_actions = world.rows::<ActionByItem>(&(org(), "post".into(), "p2".into())).await;
    assert_eq!(taken_actions.len(), 2, "{taken_actions:?}");

    let stored = world.deps.store.get::<Job>(&(org(), job.job_id)).await.unwrap().unwrap();
    let job_summary = serde_json::to_value(summary::summarize(stored).unwrap()).unwrap();
    assert_eq!(job_summary["decision"]["related"][1]["item"]["id"], "p2", "{job_summary}");
    assert_eq!(job_summary["decision"]["related"][1]["user"]["id"], "u2", "{job_summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn appeal_against_a_related_item_reverses_its_strike() {
    let mut world = World::started().await;
    let job = open_reported_job(&world).await;
    let decision = DecisionRequest {
        related: vec![related_request(post("p3"), &["limit_reach"])],
        ..request(&job, Verdict::Ignore, &[])
    };
    send(&world, &job, &decision).await.unwrap();
    callback_bodies(&world, 2).await;
    let appeal = Appeal {
        actions_taken: vec![Mention { id: "limit_reach".to_owned(), known: true }],
        ..appeal(world.version().await, entry(&post("p3"), "me too"))
    };
    world.append(Topic::Appeals, &post("p3").log_key(&org()), &appeal).await;
    decide(&world, "appeals", Verdict::Accept).await;
    world
        .wait_for("the reversal", async || world.rows::<StrikeReversal>(&(org(), user("u3"))).await.pop())
        .await;
    world.drain().await;
    assert_eq!(strikes(&world, "u1").await, Vec::<i64>::new(), "the reported item was spared");
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_can_act_on_the_author_only() {
    let mut world = World::started().await;
    let job = open_reported_job(&world).await;
    let decision = DecisionRequest {
        related: vec![related_request(user("u1"), &["ban"])],
        ..request(&job, Verdict::Ignore, &[])
    };
    send(&world, &job, &decision).await.unwrap();
    let bodies = callback_bodies(&world, 2).await;
    let find_body = |id: &str| bodies.iter().find(|body| body["item"]["id"] == id).unwrap();
    assert_eq!((find_body("p1").get("action"), &find_body("u1")["action"]["id"]), (None, &"ban".into()));
    assert!(bodies.iter().all(|body| body["decision"]["verdict"] == "ignore"), "{bodies:?}");
    world.drain().await;
    let findings = world.rows::<ReporterFinding>(&(org(), "user".into(), "reporter-1".into())).await;
    assert!(findings[0].upheld, "an action was taken on the report");
}

#[tokio::test(flavor = "multi_thread")]
async fn related_items_are_refused_with_the_place_and_the_remedy() {
    let mut world = World::new().await;
    let documents = "queue: default\nhidden_actions: [look]\nrequire: {policy: true}\n---\n\
                     action: warn\nkind: callback\nparameters: [{name: text, type: STRING, required: true}]\n";
    world.configure(documents, false).await;
    world.start();
    let job = open_reported_job(&world).await;
    let policy = world.deps.live.load_latest(&org()).await.unwrap().policies()[0].id.clone();
    let valid_request =
        RelatedRequest { policies: vec![policy.clone()], ..related_request(post("p4"), &["ban"]) };
    let decision =
        |related: Vec<RelatedRequest>| DecisionRequest { related, ..request(&job, Verdict::Ignore, &[]) };
    let with = |item: ItemKey, actions: &[&str]| RelatedRequest {
        policies: vec![policy.clone()],
        ..related_request(item, actions)
    };
    let too_many_actions = vec!["ban"; 101];
    for (wrong, at, says) in [
        (
            vec![valid_request.clone(), with(post("p9"), &["ban"])],
            "/related/1/item",
            "user/u1, post/p4, post/p2, post/p3",
        ),
        (vec![with(user("u2"), &["ban"])], "/related/0/item", "does not belong to the job"),
        (vec![with(user("reporter-1"), &["ban"])], "/related/0/item", "does not belong to the job"),
        (vec![with(post("p1"), &["ban"])], "/related/0/item", "`actions`"),
        (vec![valid_request.clone(), valid_request.clone()], "/related/1/item", "/related/0"),
        (vec![with(post("p2"), &[])], "/related/0/actions", "at least one"),
        (vec![with(post("p2"), &["ban", "burn"])], "/related/0/actions/1", "burn"),
        (vec![with(post("p2"), &["look"])], "/related/0/actions/0", "queue"),
        (vec![with(post("p2"), &["warn"])], "/related/0/actions/0/parameters", "text"),
        (vec![with(post("p2"), &too_many_actions)], "/related", "100"),
        (vec![related_request(post("p2"), &["ban"])], "/related/0/policies", "at least one policy"),
        (
            vec![RelatedRequest { policies: vec!["none".into()], ..valid_request.clone() }],
            "/related/0/policies/0",
            "none",
        ),
    ] {
        let refusal = send(&world, &job, &decision(wrong)).await.unwrap_err();
        let DecisionRefusal::Invalid { pointer, detail } = refusal else { panic!("{at}: {refusal:?}") };
        assert_eq!(pointer, at, "{detail}");
        assert!(detail.contains(says), "{at}: {detail}");
    }
    send(&world, &job, &decision(vec![valid_request])).await.unwrap();
    world.drain().await;
}
