//! Review queues and routing, as operators and review tools use them.

use crate::support::{Demo, Place, browser::Browser, operator, post, report, text};
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually};

const DOCUMENTS: &str = "queue: scams\nname: Scams\ntarget_age: 4h\naccess: {people: [ann], roles: [lead]}\n---\n\
    routing: reports\nentries:\n\
    - {name: wallets, when: {text: {in: [text], words: [wallet]}}, queue: scams}\n\
    - {name: crowd, when: {field: {path: report.reporters, gte: 2}}, queue: scams}\n";

async fn configured(place: &Place) -> Demo {
    let demo = place.start().await.unwrap();
    let change = json!({"files": [{"name": "queues.yaml", "text": DOCUMENTS}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    demo
}

async fn reported(demo: &Demo, queue: &str, id: &str, text: &str) -> Value {
    let report_body = report(&post(id, "mallory", text));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    demo.job(queue, id).await
}

#[tokio::test]
async fn queues_are_counted_and_open_to_their_reviewers_only() {
    let place = Place::new();
    let demo = configured(&place).await;
    let job = reported(&demo, "scams", "p1", "my wallet").await;
    assert_eq!((&job["routedBy"], &job["signals"]["reporters"]), (&json!("reports/wallets"), &json!(1)));
    let of = |list: &Value, key: &str| {
        let matching_queue =
            list["items"].as_array().unwrap().iter().find(|queue| queue["key"] == key).cloned();
        matching_queue.unwrap_or_else(|| panic!("no {key}: {list}"))
    };
    let queue = of(&demo.admin("/queues").await, "scams");
    assert_eq!(
        (&queue["open"], &queue["claimed"], &queue["withinTarget"]),
        (&json!(1), &json!(0), &json!(true))
    );
    assert_eq!((&queue["lastHour"]["opened"], &queue["class"]), (&json!(1), &json!("review")));

    let path = format!("/jobs/{}/claim", job["id"].as_str().unwrap());
    let bob = json!({"reviewer": "bob"});
    let (status, answer) = demo.command(&path, &bob).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("not open to bob"), "{answer}");
    assert_eq!(demo.command("/jobs/claim-next", &json!({"queue": "scams", "reviewer": "bob"})).await.0, 403);
    let lead = json!({"queue": "scams", "reviewer": "bob", "roles": ["lead"]});
    let (status, answer) = demo.command("/jobs/claim-next", &lead).await;
    assert_eq!((status.as_u16(), &answer["id"]), (200, &job["id"]), "{answer}");
    assert_eq!(of(&demo.admin("/queues").await, "scams")["claimed"], 1);

    let first = demo.admin("/queues?limit=1").await;
    assert_eq!((&first["items"][0]["key"], &first["next"]), (&json!("appeals"), &json!("appeals")));
    assert_eq!(demo.admin("/queues?limit=1&cursor=escalations").await["items"][0]["key"], "scams");
}

#[tokio::test]
async fn decided_queue_can_be_removed_and_stays_in_lists() {
    let place = Place::new();
    // The job counts as open while its decision can still be undone.
    let demo = place.start_with(&[("TIDEGATE__REVIEW__UNDO_MS", "600000")]).await.unwrap();
    let original_files = demo.admin("/config").await["files"].clone();
    let crowd_queue = json!({"files": [{"name": "queues.yaml", "text": "queue: crowd\nname: Crowd\n"}]});
    assert_eq!(demo.command("/config", &crowd_queue).await.0, 200);
    let job = reported(&demo, "default", "r1", "hello").await;
    let id = job["id"].as_str().unwrap();
    assert_eq!(demo.command(&format!("/jobs/{id}/move"), &json!({"queue": "crowd"})).await.0, 200);

    let pruning_change = json!({"files": original_files, "prune": true});
    for path in ["/config/validate", "/config"] {
        let (status, answer) = demo.command(path, &pruning_change).await;
        assert_eq!(status, 409, "{path}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains("`crowd` has 1 open job."), "{path}: {answer}");
    }
    demo.decide(&job, "ignore", &[]).await;
    let (status, answer) = demo.command("/config", &pruning_change).await;
    assert_eq!(status, 200, "{answer}");

    let crowd =
        |list: &Value| list["items"].as_array().unwrap().iter().find(|it| it["key"] == "crowd").cloned();
    let queue = crowd(&demo.admin("/queues").await).expect("the removed queue");
    assert_eq!((&queue["removed"], &queue["open"]), (&json!(true), &json!(1)), "{queue}");
    for filter in ["state=all", "state=decided&typeId=post&itemId=r1"] {
        let jobs = demo.admin(&format!("/jobs?{filter}")).await;
        let job_ids: Vec<_> = jobs["items"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
        assert_eq!(job_ids, [id], "{filter}: {jobs}");
    }
    let mut browser = Browser::signed_in(&demo, demo.var("TIDEGATE_ADMIN_KEY")).await;
    let page = browser.get("/queues").await;
    assert!(
        page.body.contains("<code dir=\"auto\">crowd</code> <span class=\"badge bad\">removed</span>"),
        "{}",
        page.body
    );
    let page = browser.get("/jobs?state=all").await;
    assert!(page.body.contains(&format!("/jobs/{id}\"")), "{}", page.body);

    assert_eq!(demo.command("/config", &crowd_queue).await.0, 200);
    let queue = crowd(&demo.admin("/queues").await).expect("the queue again");
    assert_eq!((queue.get("removed"), &queue["name"]), (None, &json!("Crowd")), "{queue}");
}

#[tokio::test]
async fn routing_is_explained_for_stored_items_and_files() {
    let place = Place::new();
    let demo = configured(&place).await;
    demo.submit(&post("p1", "mallory", "my wallet")).await;
    demo.evaluated("post", "p1").await;
    let explain = async |args: &[&str]| -> Value {
        let command = ["routing", "explain", "--list", "reports"];
        serde_json::from_str(&place.run_ok(&[&command, args].concat()).await).unwrap()
    };
    let stored = explain(&["--item", "post/p1"]).await;
    assert_eq!((&stored["queue"], &stored["routedBy"]), (&json!("scams"), &json!("reports/wallets")));

    let cause = place.folder.path().join("cause.json");
    let cause_body = json!({"item": {"typeId": "post", "data": post("x", "mallory", "hello")["data"]}, "report": {"reporters": 1}});
    std::fs::write(&cause, cause_body.to_string()).unwrap();
    let few = explain(&["--cause", cause.to_str().unwrap()]).await;
    assert_eq!((&few["queue"], few.get("routedBy")), (&json!("default"), None), "{few}");
    let entries = few["entries"].as_array().unwrap();
    assert_eq!(entries.iter().map(|entry| &entry["matches"]).collect::<Vec<_>>(), [false, false], "{few}");
    assert_eq!(entries[0]["tree"]["text"]["outcome"], "failed", "{few}");

    // The folder holds documents that are not live yet.
    let folder = place.folder.path().join("candidate");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("queues.yaml"), DOCUMENTS.replace("gte: 2", "gte: 1")).unwrap();
    let explanation =
        explain(&["--cause", cause.to_str().unwrap(), "--config", folder.to_str().unwrap()]).await;
    assert_eq!(explanation["routedBy"], "reports/crowd", "{explanation}");

    let data = place.data();
    let args =
        ["routing", "explain", "--list", "users", "--item", "post/p1", "--data", data.to_str().unwrap()];
    let output = place.run(&args).await;
    assert_ne!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("reports, rules or appeals"), "{}", text(&output.stderr));
    drop(demo);
}

#[tokio::test]
async fn moved_job_waits_and_counts_in_the_other_queue_only() {
    let place = Place::new();
    let demo = configured(&place).await;
    let job = reported(&demo, "default", "m1", "hello").await;
    let id = job["id"].as_str().unwrap();
    let path = format!("/jobs/{id}/move");
    let claim = json!({"reviewer": "ann"});
    assert_eq!(demo.command(&format!("/jobs/{id}/claim"), &claim).await.0, 200);

    for (body, status, says) in [
        (json!({"queue": "scams", "reviewer": "bob"}), 409, "claimed by ann"),
        (json!({"queue": "nowhere", "reviewer": "ann"}), 400, "no queue nowhere"),
        (json!({"queue": "child-safety", "reviewer": "ann"}), 400, "escalate"),
        (json!({"queue": "appeals", "reviewer": "ann"}), 400, "of class appeal"),
        (json!({"queue": "scams", "reason": " ", "reviewer": "ann"}), 400, "text is empty"),
    ] {
        let (got, answer) = demo.command(&path, &body).await;
        assert_eq!(got, status, "{body}: {answer}");
        assert!(answer.to_string().contains(says), "{body}: {answer}");
    }
    let body = json!({"queue": "scams", "reason": "sells coins", "reviewer": "ann"});
    for _ in 0..2 {
        let (status, answer) = demo.command(&path, &body).await;
        assert_eq!((status.as_u16(), &answer["jobId"]), (200, &job["id"]), "{answer}");
    }
    let moved_job = demo.admin(&format!("/jobs/{id}")).await;
    assert_eq!((&moved_job["queue"], moved_job.get("claimedBy")), (&json!("scams"), None), "{moved_job}");
    assert_eq!(moved_job["moves"].as_array().unwrap().len(), 1, "{moved_job}");
    let texts: Vec<_> = moved_job["comments"].as_array().unwrap().iter().map(|it| &it["text"]).collect();
    assert_eq!(texts, ["Moved from default to scams: sells coins"]);

    let queues = demo.admin("/queues").await;
    let counts = |key: &str| {
        let queue = queues["items"].as_array().unwrap().iter().find(|it| it["key"] == key).cloned().unwrap();
        [&queue["open"], &queue["lastHour"]["opened"], &queue["lastHour"]["closed"]]
            .map(|it| it.as_i64().unwrap())
    };
    assert_eq!((counts("default"), counts("scams")), ([0, 1, 1], [1, 1, 0]), "{queues}");
    assert_eq!(
        demo.command("/jobs/claim-next", &json!({"queue": "default", "reviewer": "bob"})).await.0,
        204
    );
    let ann = json!({"queue": "scams", "reviewer": "ann"});
    let (status, claimed_job) = demo.command("/jobs/claim-next", &ann).await;
    assert_eq!((status.as_u16(), &claimed_job["id"]), (200, &job["id"]), "{claimed_job}");
    let rows = demo.admin(&format!("/audit?object={path}")).await;
    let moved_rows: Vec<_> =
        rows["items"].as_array().unwrap().iter().filter(|row| row["status"] == 200).collect();
    assert_eq!(moved_rows[0]["detail"]["to"], "scams", "{rows}");
}

#[tokio::test]
async fn claim_with_an_api_key_names_the_person() {
    let place = Place::new();
    let demo = configured(&place).await;
    let job = reported(&demo, "default", "n1", "hello").await;
    demo.whole_job(&job).await;
    let path = format!("/jobs/{}/claim", job["id"].as_str().unwrap());
    for (path, body) in [("/jobs/claim-next", json!({"queue": "default"})), (&*path, json!({}))] {
        let (status, answer) = demo.command(path, &body).await;
        assert_eq!(
            (status.as_u16(), &answer["errors"][0]["pointer"]),
            (400, &json!("/reviewer")),
            "{answer}"
        );
        let detail = answer["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains("share an API key") && detail.contains("`reviewer`"), "{detail}");
    }
    let operator = operator(&place);
    let next = json!({"queue": "default"});
    let (status, claimed_job) = demo.admin_as(&operator, Method::POST, "/jobs/claim-next", Some(&next)).await;
    assert_eq!((status.as_u16(), &claimed_job["claimedBy"]), (200, &json!("operator")), "{claimed_job}");
}

#[tokio::test]
async fn claim_next_gives_no_held_job_unless_asked_to() {
    let place = Place::new();
    let demo = configured(&place).await;
    for item in ["h1", "h2"] {
        let job = reported(&demo, "default", item, "hello").await;
        demo.whole_job(&job).await;
    }
    let ann = json!({"queue": "default", "reviewer": "ann"});
    let (_, first) = demo.command("/jobs/claim-next", &ann).await;
    let (status, second) = demo.command("/jobs/claim-next", &ann).await;
    assert_eq!(status, 200, "{second}");
    assert_ne!(first["id"], second["id"]);
    assert_eq!(demo.command("/jobs/claim-next", &ann).await.0, 204, "both jobs are held");
    let (status, held_job) = demo.command("/jobs/claim-next?held=true", &ann).await;
    assert_eq!(status, 200, "{held_job}");
    assert!(
        [&first, &second].iter().any(|job| job["id"] == held_job["id"] && job["epoch"] == held_job["epoch"])
    );
}

#[tokio::test]
async fn policy_named_by_key_counts_as_named_by_id() {
    let place = Place::new();
    let demo = configured(&place).await;
    let text = "policy: hate\nname: Hate\nseverity: severe\n";
    let change = json!({"files": [{"name": "hate.yaml", "text": text}]});
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let policies = demo.platform(Method::GET, "/api/v1/policies/", None).await.1;
    let policies = policies["policies"].as_array().unwrap();
    let id = policies.iter().find(|policy| policy["name"] == "Hate").unwrap()["id"].clone();
    for (item, policy) in [("by-id", &id), ("by-key", &json!("hate"))] {
        let mut report_body = report(&post(item, "mallory", "hello"));
        report_body["reportedForReason"] = json!({"policyId": policy});
        assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
        let job = demo.job("default", item).await;
        assert_eq!((&job["signals"]["severity"], &job["priority"]), (&json!("severe"), &json!(8)), "{job}");
        let shown_job = demo.whole_job(&job).await;
        assert_eq!(shown_job["causes"][0]["report"]["policy"]["id"], id, "{shown_job}");
    }
    let job = demo.job("default", "by-key").await;
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let claimed_job = demo.command(&format!("{path}/claim"), &json!({"reviewer": "ann"})).await.1;
    let decision_body = json!({
        "epoch": claimed_job["epoch"], "verdict": "act", "actions": ["remove"], "policies": ["hate", id], "reviewer": "ann",
    });
    let (status, accepted_decision) = demo.command(&format!("{path}/decisions"), &decision_body).await;
    assert_eq!((status.as_u16(), &accepted_decision["policies"]), (202, &json!([id])), "{accepted_decision}");
}

#[tokio::test]
async fn audit_names_reviewer_verdict_and_actions() {
    let place = Place::new();
    let demo = configured(&place).await;
    let job = reported(&demo, "default", "a1", "hello").await;
    demo.whole_job(&job).await;
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let claimed_job = demo.command(&format!("{path}/claim"), &json!({"reviewer": "anna"})).await.1;
    let comment = json!({"text": "a secret remark", "reviewer": "anna"});
    assert_eq!(demo.command(&format!("{path}/comments"), &comment).await.0, 201);
    let skip = json!({"epoch": claimed_job["epoch"], "reviewer": "anna"});
    assert_eq!(demo.command(&format!("{path}/skip"), &skip).await.0, 204);
    let claimed_job = demo.command(&format!("{path}/claim"), &json!({"reviewer": "anna"})).await.1;
    let release = json!({"epoch": claimed_job["epoch"], "reviewer": "anna"});
    assert_eq!(demo.command(&format!("{path}/release"), &release).await.0, 204);
    let next = json!({"queue": "default", "reviewer": "anna"});
    let claimed_job = demo.command("/jobs/claim-next", &next).await.1;
    let decision_body = json!({
        "epoch": claimed_job["epoch"], "verdict": "act", "actions": ["remove"], "reviewer": "anna", "reason": "a secret reason",
        "related": [{"item": {"id": "mallory", "typeId": "user"}, "actions": ["limit_reach"]}],
    });
    let (status, answer) = demo.command(&format!("{path}/decisions"), &decision_body).await;
    assert_eq!(status, 202, "{answer}");
    let audit = demo.admin("/audit?object=/jobs/").await;
    assert!(!audit.to_string().contains("secret"), "{audit}");
    let detail = |action: &str| {
        let mut entries = audit["items"].as_array().unwrap().iter();
        let entry = entries.find(|entry| entry["action"] == action);
        entry.unwrap_or_else(|| panic!("no {action}: {audit}"))["detail"].clone()
    };
    for action in ["claim", "comments", "skip", "release", "decisions"] {
        assert_eq!(detail(&format!("POST /jobs/{{id}}/{action}"))["reviewer"], "anna", "{action}: {audit}");
    }
    assert_eq!(detail("POST /jobs/claim-next")["job"], job["id"], "{audit}");
    let decision = detail("POST /jobs/{id}/decisions");
    assert_eq!(
        (&decision["verdict"], &decision["actions"]),
        (&json!("act"), &json!(["remove"])),
        "{decision}"
    );
    let related = json!([{"item": {"id": "mallory", "typeId": "user"}, "actions": ["limit_reach"]}]);
    assert_eq!(decision["related"], related);
}

#[tokio::test]
async fn review_key_needs_a_scope_for_child_safety_jobs() {
    let place = Place::new();
    let demo = configured(&place).await;
    let key_of = async |scopes: &str| {
        let created_key = place.run_ok(&["keys", "create", "--scopes", scopes]).await;
        created_key.trim().to_owned()
    };
    let (review, safety) = (key_of("review").await, key_of("review,child_safety").await);
    let mut report_body = report(&post("s1", "mallory", "hm"));
    report_body["reportedForReason"] = json!({"csam": true});
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let hidden_job = demo.job("child-safety", "s1").await;
    let job = reported(&demo, "default", "k1", "hello").await;
    demo.whole_job(&job).await;
    let work = async |key: &str, job: &Value| {
        let path = format!("/jobs/{}", job["id"].as_str().unwrap());
        let claim = json!({"reviewer": "ann"});
        let (status, claimed_job) =
            demo.admin_as(key, Method::POST, &format!("{path}/claim"), Some(&claim)).await;
        if status != 200 {
            return status.as_u16();
        }
        let comment = json!({"text": "seen", "reviewer": "ann"});
        let added = demo.admin_as(key, Method::POST, &format!("{path}/comments"), Some(&comment)).await;
        assert_eq!(added.0, 201, "{}", added.1);
        let decision_body = json!({"epoch": claimed_job["epoch"], "verdict": "ignore", "reviewer": "ann"});
        let decision_response =
            demo.admin_as(key, Method::POST, &format!("{path}/decisions"), Some(&decision_body)).await;
        decision_response.0.as_u16()
    };
    assert_eq!(work(&review, &hidden_job).await, 403, "the scope child_safety is also required");
    assert_eq!(work(&review, &job).await, 202);
    assert_eq!(work(&safety, &hidden_job).await, 202);
    let config = demo.admin_as(&safety, Method::GET, "/config", None).await;
    assert_eq!(config.0, 403, "{}", config.1);
}

#[tokio::test]
async fn jobs_of_all_queues_are_listed_by_priority() {
    let place = Place::new();
    let demo = configured(&place).await;
    let text = "policy: hate\nseverity: severe\n";
    let change = json!({"files": [{"name": "hate.yaml", "text": text}]});
    assert_eq!(demo.command("/config", &change).await.0, 200);
    for item in ["l1", "l2", "l3"] {
        reported(&demo, "default", item, "hello").await;
    }
    let mut report_body = report(&post("l4", "mallory", "my wallet"));
    report_body["reportedForReason"] = json!({"policyId": "hate"});
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    demo.job("scams", "l4").await;
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = demo.admin(&format!("/jobs?limit=2{cursor}")).await;
        items.extend(page["items"].as_array().unwrap().iter().map(|job| job["item"]["id"].clone()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(items, ["l4", "l1", "l2", "l3"]);
    let mut browser = Browser::signed_in(&demo, demo.var("TIDEGATE_ADMIN_KEY")).await;
    let page = browser.get("/jobs").await;
    let place_of = |item: &str| page.body.find(&format!(">{item}</code>")).unwrap();
    assert!(place_of("l4") < place_of("l1") && place_of("l1") < place_of("l3"), "{}", page.body);
}

#[tokio::test]
async fn skipped_job_goes_to_others_first() {
    let place = Place::new();
    let demo = configured(&place).await;
    let one = reported(&demo, "default", "k1", "hello").await;
    let two = reported(&demo, "default", "k2", "hello").await;
    let next = async |reviewer: &str| {
        demo.command("/jobs/claim-next", &json!({"queue": "default", "reviewer": reviewer})).await.1
    };
    let skip = async |job: &Value, reviewer: &str| {
        let body = json!({"epoch": job["epoch"], "reviewer": reviewer, "reason": "no Greek"});
        demo.command(&format!("/jobs/{}/skip", job["id"].as_str().unwrap()), &body).await.0.as_u16()
    };
    let first = next("ann").await;
    let other_job = if first["id"] == one["id"] { &two } else { &one };
    assert_eq!(skip(&first, "bob").await, 409, "the claim is not bob's");
    assert_eq!(skip(&first, "ann").await, 204);
    let second = next("ann").await;
    assert_eq!(second["id"], other_job["id"], "the skipped job is last");
    assert_eq!(next("bob").await["id"], first["id"], "other reviewers get the job");
    let skipped_job = demo.admin(&format!("/jobs/{}", first["id"].as_str().unwrap())).await;
    assert_eq!(
        (&skipped_job["skips"][0]["by"], &skipped_job["comments"][0]["text"]),
        (&json!("ann"), &json!("Skipped: no Greek"))
    );
    assert_eq!(skip(&skipped_job, "bob").await, 204);
    assert_eq!(skip(&second, "ann").await, 204);
    // Only skipped jobs remain, so the one with the oldest skip is next.
    assert_eq!(next("ann").await["id"], first["id"]);
}

#[tokio::test]
async fn old_job_is_closed_automatically_and_audited() {
    let place = Place::new();
    let demo = place.start_with(&[("TIDEGATE__PROCESSORS__AUTO_CLOSE_EVERY_MS", "1000")]).await.unwrap();
    let config = |text: &str| json!({"files": [{"name": "queues.yaml", "text": text}]});
    let invalid_change = config("queue: child-safety\nauto_close_after: 30d\n");
    let (status, answer) = demo.command("/config", &invalid_change).await;
    assert!(status.is_client_error(), "{answer}");
    assert!(
        answer.to_string().contains("A queue of child safety cannot close jobs automatically"),
        "{answer}"
    );

    let documents = DOCUMENTS.replace("target_age: 4h", "auto_close_after: 1s");
    assert_eq!(demo.command("/config", &config(&documents)).await.0, 200);
    let report_body = report(&post("p1", "mallory", "my wallet"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let closed = eventually("a closed job", PATIENCE, async || {
        let closed_jobs = demo.admin("/jobs?queue=scams&state=closed").await;
        closed_jobs["items"].as_array().unwrap().first().cloned()
    });
    let closed = closed.await.unwrap();
    assert_eq!((&closed["state"], closed.get("decision")), (&json!("closed"), None), "{closed}");
    assert!(closed["closedAt"].is_string(), "{closed}");

    let id = closed["id"].as_str().unwrap();
    let (status, answer) = demo.command(&format!("/jobs/{id}/claim"), &json!({"reviewer": "ann"})).await;
    assert_eq!(status, 409, "{answer}");
    let queues = demo.admin("/queues").await;
    let queue = queues["items"].as_array().unwrap().iter().find(|queue| queue["key"] == "scams").unwrap();
    assert_eq!((&queue["open"], &queue["lastHour"]["closed"]), (&json!(0), &json!(1)), "{queue}");
    assert_eq!(queue["autoCloseAfterSeconds"], 1);
    let path = format!("/jobs/{id}");
    let audited = eventually("the end of the audit entry", PATIENCE, async || {
        let audit_rows = place.run_ok(&["audit", "list", "--action", "auto_closed", "--object", &path]).await;
        let entry: Value = serde_json::from_str(audit_rows.lines().next()?).unwrap();
        (entry["status"] == 200).then_some(entry)
    });
    let audited = audited.await.unwrap();
    assert_eq!((&audited["actor"], &audited["object"]), (&json!("service"), &json!(path)), "{audited}");
    assert_eq!(audited["detail"]["autoCloseAfter"], "1s", "{audited}");
    assert_eq!(
        demo.admin("/deliveries?itemId=p1").await["items"],
        json!([]),
        "the job closed without a decision"
    );
}
