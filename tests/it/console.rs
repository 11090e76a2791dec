//! The console as a browser uses it: sign-in, sessions, forms, and the content of pages.

use reqwest::Method;
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually, eventually_ok};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::support::{
    Demo, Place,
    browser::{Browser, Page},
    post, report,
};

const HOSTILE: &str = "\"><script>alert(1)</script>";
const ESCAPED: &str = "&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;";

/// Creates a key with these scopes. Returns the key and its id.
async fn key_with(demo: &Demo, name: &str, scopes: &[&str]) -> (String, String) {
    let (status, created_key) = demo.command("/keys", &json!({ "name": name, "scopes": scopes })).await;
    assert_eq!(status, 201, "{created_key}");
    (created_key["key"].as_str().unwrap().to_owned(), created_key["id"].as_str().unwrap().to_owned())
}

fn is_sent_to_sign_in(page: &Page) -> bool {
    page.status == 303 && page.location().starts_with("/sign-in")
}

#[tokio::test]
async fn sign_in_opens_the_pages_and_sign_out_ends_the_session() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let admin = demo.var("TIDEGATE_ADMIN_KEY").to_owned();
    let mut browser = Browser::new(&demo);
    assert_eq!(browser.get("/").await.location(), "/sign-in");
    let requested_path = "/jobs?queue=default&state=all";
    let to = browser.get(requested_path).await.location().to_owned();
    assert_eq!(to, "/sign-in?next=%2Fjobs%3Fqueue%3Ddefault%26state%3Dall");
    let page = browser.get(&to).await;
    let visitor = browser.cookie.clone().unwrap();
    let page = browser.send(&page, "/sign-in", &[("key", &format!(" {admin} "))]).await;
    assert_eq!((page.status, page.location()), (303, requested_path));
    let set = page.headers["set-cookie"].to_str().unwrap();
    // Form of the cookie on loopback without TLS; the unit tests cover the form with TLS.
    assert!(set.starts_with("tidegate=") && set.contains("HttpOnly; SameSite=Strict"), "{set}");
    assert!(set.contains("Max-Age=43200;"), "{set}");
    let secret = admin.split('_').nth(3).unwrap();
    assert!(!set.contains(secret), "the key is in the cookie");
    let session = browser.cookie.clone().unwrap();
    assert_ne!(session, visitor, "a token from before the sign-in is a session");
    for path in [
        "/queues",
        "/jobs",
        "/partial-requests",
        "/settings/keys",
        "/settings/keys/new",
        "/settings/partial-items",
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(page.body.contains("Sign out") && !page.body.contains("<script"), "{path}: {}", page.body);
        for (name, part) in [
            ("content-security-policy", "default-src 'none'; style-src 'self';"),
            ("content-security-policy", "frame-ancestors 'none'"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("content-type", "text/html; charset=utf-8"),
        ] {
            assert!(page.headers[name].to_str().unwrap().contains(part), "{path}: {name}");
        }
    }
    assert_eq!(browser.get("/style.css").await.headers["content-type"], "text/css; charset=utf-8");

    let page = browser.get("/queues").await;
    let out = browser.send(&page, "/sign-out", &[]).await;
    assert_eq!((out.status, out.location()), (303, "/sign-in?out=1"));
    assert_eq!(browser.cookie, None);
    browser.cookie = Some(session);
    assert!(is_sent_to_sign_in(&browser.get("/queues").await), "a copied cookie outlives the sign-out");
    let entries = demo.admin("/audit").await["items"].as_array().unwrap().clone();
    let actions: Vec<_> = entries.iter().filter_map(|entry| entry["action"].as_str()).collect();
    assert_eq!(&actions[..2], ["POST /sign-out", "POST /sign-in"]);
    // Without a status, the audit would say that the process ended during the sign-in.
    assert_eq!(entries[1]["status"], 303, "{entries:?}");
}

#[tokio::test]
async fn unusable_keys_are_refused_with_the_same_message() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let (revoked, id) = key_with(&demo, "gone", &["admin"]).await;
    assert_eq!(
        demo.admin_as(demo.var("TIDEGATE_ADMIN_KEY"), Method::DELETE, &format!("/keys/{id}"), None).await.0,
        204
    );
    let (known, _) = key_with(&demo, "mine", &["admin"]).await;
    let mut unknown = known.clone();
    unknown.replace_range(unknown.len() - 1.., if known.ends_with('0') { "1" } else { "0" });
    let mut browser = Browser::new(&demo);
    for key in ["no key", HOSTILE, &unknown, &revoked] {
        let page = browser.sign_in(key).await;
        assert_eq!(page.status, 401, "{key}: {}", page.body);
        assert!(page.body.contains("This key is not valid"), "{}", page.body);
        assert!(!page.body.contains(key), "a key is echoed");
        assert!(is_sent_to_sign_in(&browser.get("/queues").await));
    }
    let page = browser.sign_in(demo.var("TIDEGATE_API_KEY")).await;
    assert_eq!(page.status, 403);
    assert!(page.body.contains("neither the scope review nor admin"), "{}", page.body);
    assert!(is_sent_to_sign_in(&browser.get("/queues").await));
}

#[tokio::test]
async fn session_ends_with_its_key_and_with_its_time() {
    let place = Place::new();
    let demo = place.start_with(&[("TIDEGATE__REVIEW__SESSION_MS", "604800000")]).await.unwrap();
    let (key, id) = key_with(&demo, "ann", &["admin"]).await;
    let mut browser = Browser::signed_in(&demo, &key).await;
    // Another process, or the same one after a crash, accepts the session.
    demo.stop().await;
    let demo = place.start().await.unwrap();
    let cookie = browser.cookie.take();
    browser = Browser::new(&demo);
    browser.cookie = cookie;
    assert_eq!(browser.get("/queues").await.status, 200);
    let page = browser.get("/settings/keys/new").await;
    let (status, _) = demo.command(&format!("/keys/{id}/revoke"), &json!({})).await;
    assert_eq!(status, 204);
    assert_eq!(browser.get("/queues").await.location(), "/sign-in?next=%2Fqueues");
    let form_response = browser.send(&page, "/settings/keys", &[("name", "late"), ("scopes", "admin")]).await;
    assert_eq!(form_response.location(), "/sign-in?ended=1");

    let mut short = signed_in_with_short_key(&demo).await;
    ends(&mut short).await;
    demo.stop().await;

    let demo = place.start_with(&[("TIDEGATE__REVIEW__SESSION_MS", "1000")]).await.unwrap();
    let (key, _) = key_with(&demo, "bob", &["admin"]).await;
    let mut brief = Browser::signed_in(&demo, &key).await;
    ends(&mut brief).await;
    let names = demo.admin("/keys").await.to_string();
    assert!(!names.contains("late"), "{names}");
}

/// Signs in with a key that expires soon. Raises the lifetime until this machine signs in before the expiry.
async fn signed_in_with_short_key(demo: &Demo) -> Browser {
    for seconds in [2, 8, 30] {
        let body = json!({ "name": "short", "scopes": ["admin"], "expiresInSeconds": seconds });
        let (_, created_key) = demo.command("/keys", &body).await;
        let mut browser = Browser::new(demo);
        if browser.sign_in(created_key["key"].as_str().unwrap()).await.status == 303 {
            return browser;
        }
    }
    panic!("no key was accepted");
}

#[tokio::test]
async fn failed_sign_ins_are_bounded() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    // Concurrent requests, because the bound refills over time.
    let failed =
        futures::future::join_all((0..100).map(|_| async { Browser::new(&demo).sign_in("tg_wrong").await }))
            .await;
    let rejected_pages: Vec<_> = failed.iter().filter(|page| page.status == 429).collect();
    assert!(!rejected_pages.is_empty() && failed.iter().any(|page| page.status == 401), "{failed:?}");
    for page in rejected_pages {
        assert!(page.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
        assert!(page.body.contains("Too many attempts to sign in"), "{}", page.body);
    }
    let (_, metrics) = demo.operations("/metrics").await;
    assert!(metrics.contains(r#"limit="sign_in""#), "{metrics}");
    let admin = demo.var("TIDEGATE_ADMIN_KEY");
    let signed_in = async || (Browser::new(&demo).sign_in(admin).await.status == 303).then_some(());
    eventually("a sign-in with a right key", PATIENCE, signed_in).await.unwrap();
}

#[tokio::test]
async fn pages_of_other_hosts_require_tls() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut browser = Browser::new(&demo);
    for (headers, is_asked) in
        [(&[][..], false), (&[("x-forwarded-proto", "https")], true), (&[("host", "console.example")], true)]
    {
        let page = browser.request(Method::GET, "/sign-in", None, headers).await;
        let header = page.headers.get("strict-transport-security").map(|value| value.to_str().unwrap());
        assert_eq!(header, is_asked.then_some("max-age=31536000"), "{headers:?}");
    }
}

/// Waits until the session has expired.
async fn ends(browser: &mut Browser) {
    let ended = async || is_sent_to_sign_in(&browser.get("/queues").await).then_some(());
    eventually("the session to end", PATIENCE, ended).await.unwrap();
}

#[tokio::test]
async fn forms_of_other_sessions_and_sites_are_refused() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let admin = demo.var("TIDEGATE_ADMIN_KEY").to_owned();
    let mut second_browser = Browser::signed_in(&demo, &admin).await;
    let foreign = second_browser.get("/settings/keys/new").await.hidden_fields("/settings/keys");
    let mut browser = Browser::signed_in(&demo, &admin).await;
    let own_fields = browser.get("/settings/keys/new").await.hidden_fields("/settings/keys");
    let token = |fields: &[(String, String)]| fields[0].1.clone();
    assert_eq!(own_fields[0].0, "form_token");
    assert_ne!(token(&own_fields), token(&foreign));
    let before = demo.admin("/audit").await["items"].as_array().unwrap().len();
    let site = "sec-fetch-site";
    for (form_token, headers) in [
        (None, &[][..]),
        (Some(String::new()), &[]),
        (Some(token(&foreign)), &[]),
        (Some(token(&own_fields)), &[(site, "cross-site")]),
        (Some(token(&own_fields)), &[(site, "same-site")]),
        (Some(token(&own_fields)), &[("origin", "https://evil.example")]),
    ] {
        let mut fields = vec![("name", "forged"), ("scopes", "admin"), ("once", "1")];
        fields.extend(form_token.as_deref().map(|token| ("form_token", token)));
        let page = browser.post("/settings/keys", &fields, headers).await;
        assert_eq!(page.status, 403, "{headers:?}: {}", page.body);
        assert!(page.body.contains("The form"), "{}", page.body);
    }
    let json =
        browser.request(Method::POST, "/settings/keys", None, &[("content-type", "application/json")]).await;
    assert_eq!(json.status, 415, "{}", json.body);
    let large = "x".repeat(100_000);
    assert_eq!(browser.post("/settings/keys", &[("name", &large)], &[]).await.status, 413);
    assert!(!demo.admin("/keys").await.to_string().contains("forged"));
    assert_eq!(demo.admin("/audit").await["items"].as_array().unwrap().len(), before);
    // A sign-in without the token of the form is refused, too.
    let stranger = Browser::new(&demo).post("/sign-in", &[("key", &admin)], &[]).await;
    assert_eq!((stranger.status, stranger.headers.contains_key("set-cookie")), (403, false));
    let crossed = Browser::new(&demo).post("/sign-in", &[("key", &large)], &[]).await;
    assert_eq!(crossed.status, 413);
}

#[tokio::test]
async fn new_key_is_shown_once_and_its_form_makes_no_second() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut browser = Browser::signed_in(&demo, demo.var("TIDEGATE_ADMIN_KEY")).await;
    let form = browser.get("/settings/keys/new").await;
    let fields = [("name", HOSTILE), ("scopes", "items:read"), ("scopes", "policies:read"), ("days", "30")];
    let created_page = browser.send(&form, "/settings/keys", &fields).await;
    assert_eq!(created_page.status, 201, "{}", created_page.body);
    assert!(
        created_page.body.contains(ESCAPED) && !created_page.body.contains("<script"),
        "{}",
        created_page.body
    );
    let key = shown_key(&created_page);
    let policies = demo.platform_as(&key, Method::GET, "/api/v1/policies/", None).await;
    assert_eq!(policies.0, 200, "{}", policies.1);

    let repeated_page = browser.send(&form, "/settings/keys", &fields).await;
    assert_eq!(repeated_page.status, 409, "{}", repeated_page.body);
    assert!(
        repeated_page.body.contains("was shown at its creation") && !repeated_page.body.contains(&key),
        "{}",
        repeated_page.body
    );
    let key_list = demo.admin("/keys").await;
    let hostile_keys: Vec<_> =
        key_list["items"].as_array().unwrap().iter().filter(|key| key["name"] == HOSTILE).collect();
    assert_eq!(hostile_keys.len(), 1, "{key_list}");
    assert_eq!(hostile_keys[0]["scopes"], json!(["items:read", "policies:read"]));
    let list = browser.get("/settings/keys").await;
    assert!(list.body.contains(ESCAPED) && !list.body.contains("<script"), "{}", list.body);
    assert!(!list.body.contains(key.split('_').nth(3).unwrap()), "the list shows a secret");

    let id = hostile_keys[0]["id"].as_str().unwrap();
    let action = format!("/settings/keys/{id}/rotate");
    let form = browser.get(&action).await;
    let wrong = browser.send(&form, &action, &[("hours", "soon")]).await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("Enter a whole number of hours"), "{}", wrong.body);
    let rotated = browser.send(&form, &action, &[("hours", "2")]).await;
    assert_eq!(rotated.status, 201, "{}", rotated.body);
    let new_key = shown_key(&rotated);
    assert_ne!(new_key, key);
    for key in [&key, &new_key] {
        assert_eq!(demo.platform_as(key, Method::GET, "/api/v1/policies/", None).await.0, 200);
    }
    assert_eq!(browser.send(&form, &action, &[("hours", "2")]).await.status, 409);
    let key_list = demo.admin("/keys").await;
    let count = key_list["items"].as_array().unwrap().iter().filter(|key| key["name"] == HOSTILE).count();
    assert_eq!(count, 2, "{key_list}");

    let action = format!("/settings/keys/{id}/revoke");
    let form = browser.get(&action).await;
    assert_eq!(browser.send(&form, &action, &[]).await.location(), "/settings/keys");
    assert_eq!(demo.platform_as(&key, Method::GET, "/api/v1/policies/", None).await.0, 401);
    assert_eq!(demo.platform_as(&new_key, Method::GET, "/api/v1/policies/", None).await.0, 200);
    let entries = demo.admin("/audit").await["items"].as_array().unwrap().clone();
    let mut changes: Vec<_> = entries
        .iter()
        .map(|entry| (entry["action"].as_str().unwrap(), entry["status"].as_i64().unwrap_or_default()))
        .filter(|(action, _)| action.contains("/keys"))
        .collect();
    let (rotate, revoke) = ("POST /keys/{id}/rotate", "POST /keys/{id}/revoke");
    let mut expected = [
        (revoke, 303),
        (rotate, 409),
        (rotate, 201),
        (rotate, 400),
        ("POST /keys", 409),
        ("POST /keys", 201),
    ];
    // Entries of the same millisecond have no defined order.
    changes.sort_unstable();
    expected.sort_unstable();
    assert_eq!(changes, expected);
    assert!(!json!(entries).to_string().contains(key.split('_').nth(3).unwrap()), "the audit has a secret");
}

/// Reads the key from the page that shows it.
fn shown_key(page: &Page) -> String {
    let start = page.body.find(">tg_").expect("a key") + 1;
    page.body[start..].split('<').next().unwrap().to_owned()
}

#[tokio::test]
async fn form_errors_appear_at_their_fields_and_keep_the_input() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let (key, _) = key_with(&demo, "ann", &["admin"]).await;
    let mut browser = Browser::signed_in(&demo, &key).await;
    let form = browser.get("/settings/keys/new").await;
    assert!(!form.body.contains("child_safety"), "a scope that the key may not give is offered");
    for (fields, error) in [
        (
            &[("name", ""), ("scopes", "items:read"), ("days", "77")][..],
            "name-error\">A key&#39;s name has 1 to 200 bytes",
        ),
        (&[("name", "x"), ("days", "77")], "scopes-error\">A key needs at least one scope"),
        (
            &[("name", "x"), ("scopes", "items:read"), ("days", "x77")],
            "days-error\">Enter a whole number of days",
        ),
        (
            &[("name", "x"), ("scopes", "items:read"), ("days", "99999999")],
            "days-error\">No key ends after the year 9999",
        ),
        (&[("name", "x"), ("scopes", "odd"), ("days", "77")], "scopes-error\">there is no scope `odd`"),
        (
            &[("name", "x"), ("scopes", "child_safety"), ("days", "77")],
            "role=\"alert\"><p>The key lacks the scope",
        ),
    ] {
        let page = browser.send(&form, "/settings/keys", fields).await;
        assert!([400, 403].contains(&page.status), "{error}: {}", page.body);
        let body = page.body.replace("A key's", "A key&#39;s");
        assert!(body.contains(error), "{error}: {}", page.body);
        let days = fields.iter().find(|(name, _)| *name == "days").unwrap().1;
        assert!(page.body.contains(&format!("value=\"{days}\"")), "{}", page.body);
    }
    let created_page =
        browser.send(&form, "/settings/keys", &[("name", "x"), ("scopes", "items:read")]).await;
    assert_eq!(created_page.status, 201, "a form that was refused can be sent again: {}", created_page.body);
}

/// Text that a browser shows as `exe.png` unless the page reveals the mark that reverses its direction.
const DISGUISED: &str = "\u{202e}gnp.exe";

#[tokio::test]
async fn disguised_texts_are_revealed_and_isolated_on_every_page() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut report_body = report(&post("p1", &format!("author {DISGUISED}"), &format!("text {DISGUISED}")));
    report_body["reporter"]["id"] = format!("reporter {DISGUISED}").into();
    report_body["reportedForReason"] = json!({ "reason": format!("reason {DISGUISED}") });
    report_body["additionalItems"] = json!([post(&format!("other {DISGUISED}"), "mallory", "x")]);
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let job = demo.job("default", "p1").await;
    let job = demo.whole_job(&job).await["id"].as_str().unwrap().to_owned();
    let reviewer = format!("reviewer {DISGUISED}");
    let comment = json!({ "text": format!("comment {DISGUISED}"), "reviewer": reviewer });
    let (status, commented) = demo.command(&format!("/jobs/{job}/comments"), &comment).await;
    assert_eq!(status, 201, "{commented}");
    let (status, claimed_job) =
        demo.command(&format!("/jobs/{job}/claim"), &json!({ "reviewer": reviewer })).await;
    assert_eq!(status, 200, "{claimed_job}");

    let mut browser = Browser::signed_in(&demo, demo.var("TIDEGATE_ADMIN_KEY")).await;
    let jobs = browser.get("/jobs?state=all").await;
    let claimed_page = browser.get(&format!("/jobs/{job}")).await;
    let decision = json!({ "epoch": claimed_epoch(&demo, &job).await, "verdict": "ignore", "reviewer": reviewer,
        "reason": format!("decision {DISGUISED}") });
    let (status, decision_response) = demo.command(&format!("/jobs/{job}/decisions"), &decision).await;
    assert_eq!(status, 202, "{decision_response}");
    let decided_page = browser.get(&format!("/jobs/{job}")).await;
    for (page, kinds) in [
        (jobs, &["reviewer"][..]),
        (claimed_page, &["reviewer", "comment", "reason", "text", "author", "reporter", "other"]),
        (decided_page, &["decision", "reviewer"]),
    ] {
        let texts = page.texts();
        for kind in kinds {
            assert!(
                texts.iter().any(|(text, _)| text.contains(&format!("{kind} "))),
                "{kind}: {}",
                page.body
            );
        }
        assert!(texts.iter().all(|(text, _)| !text.contains('\u{202e}')), "{}", page.body);
        let revealed: Vec<_> = texts.iter().filter(|(text, _)| text.starts_with("U+202E")).collect();
        assert!(revealed.len() >= kinds.len(), "{}", page.body);
        for (text, is_isolated) in texts.iter().filter(|(text, _)| text.contains("gnp.exe")) {
            assert!(is_isolated, "{text}: {}", page.body);
        }
    }
}

async fn claimed_epoch(demo: &Demo, job: &str) -> Value {
    demo.admin(&format!("/jobs/{job}")).await["epoch"].clone()
}

#[tokio::test]
async fn unknown_paths_get_a_page_and_api_paths_the_envelope() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut browser = Browser::new(&demo);
    for path in ["/nothing", "/settings", "/queues/x/y"] {
        let page = browser.get(path).await;
        assert_eq!(
            (page.status, &page.headers["content-type"]),
            (404, &"text/html; charset=utf-8".parse().unwrap())
        );
        assert!(page.body.contains("There is no page at this address."), "{}", page.body);
    }
    let mut signed = Browser::signed_in(&demo, demo.var("TIDEGATE_ADMIN_KEY")).await;
    for path in [
        "/settings/keys/00000000-0000-0000-0000-000000000000/rotate",
        "/settings/keys/odd/revoke",
        "/partial-requests/1-00000000-0000-0000-0000-000000000000",
        "/partial-requests/odd",
    ] {
        let page = signed.get(path).await;
        assert_eq!(page.status, 404, "{path}: {}", page.body);
        assert!(page.body.starts_with("<!DOCTYPE html>"), "{}", page.body);
    }
    for path in ["/jobs?cursor=odd", "/partial-requests?state=odd", "/jobs?state=odd"] {
        let page = signed.get(path).await;
        assert_eq!(page.status, 400, "{path}: {}", page.body);
        assert!(page.body.starts_with("<!DOCTYPE html>"), "{}", page.body);
    }
    let page = signed.request(Method::DELETE, "/queues", None, &[]).await;
    assert!([405, 415].contains(&page.status) && page.body.starts_with("<!DOCTYPE html>"), "{}", page.body);
    let (status, body) = demo.admin_as("", Method::GET, "/no-such-thing", None).await;
    assert_eq!((status.as_u16(), &body["errors"][0]["status"]), (401, &json!(401)));
    let (status, body) =
        demo.admin_as(demo.var("TIDEGATE_ADMIN_KEY"), Method::GET, "/no-such-thing", None).await;
    assert_eq!((status.as_u16(), &body["title"]), (404, &json!("The resource was not found.")));
}

/// Starts a platform with an endpoint that answers 500. Returns its port.
async fn broken_platform() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"]}") && socket.read_buf(&mut bytes).await.unwrap_or(0) > 0 {}
                let _gone = socket
                    .write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .await;
            });
        }
    });
    port
}

#[tokio::test]
async fn partial_items_settings_are_masked_and_errors_of_requests_are_shown() {
    let place = Place::new();
    let url = format!("http://127.0.0.1:{}/items?secret=sealed-query", broken_platform().await);
    let env = [
        ("TIDEGATE__PARTIAL_ITEMS__DEFAULT__URL", url.as_str()),
        ("TIDEGATE__PARTIAL_ITEMS__DEFAULT__HEADERS__AUTHORIZATION", "Bearer sealed-header"),
    ];
    let demo = place.start_with(&env).await.unwrap();
    let item = report(&post("p1", "mallory", "as it was"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&item)).await.0, 201);
    demo.job("default", "p1").await;
    let (status, accepted) = demo.command("/items/post/p1/refresh", &json!({})).await;
    assert_eq!(status, 202, "{accepted}");
    let id = accepted["requestId"].as_str().unwrap();
    let request = eventually_ok("the request to fail", PATIENCE, async || {
        let request = demo.admin(&format!("/partial-requests/{id}")).await;
        if request["state"] == "failed" { Ok(request) } else { anyhow::bail!("{request}") }
    })
    .await
    .unwrap();
    assert_eq!(request["error"]["name"], "PartialItemsEndpointResponseError", "{request}");

    let mut browser = Browser::signed_in(&demo, demo.var("TIDEGATE_ADMIN_KEY")).await;
    let page = browser.get("/settings/partial-items").await.body.to_lowercase();
    assert!(page.contains("/items</code>") && page.contains("<code>authorization</code>"), "{page}");
    assert!(page.contains("<code>***</code>") && !page.contains("sealed"), "{page}");
    let error = "PartialItemsEndpointResponseError";
    let list_body = browser.get("/partial-requests").await.body;
    assert!(
        list_body.contains(&format!("/partial-requests/{id}")) && list_body.contains(error),
        "{list_body}"
    );
    let is_listed = async |browser: &mut Browser, query: &str| {
        let list_page = browser.get(&format!("/partial-requests?{query}")).await;
        assert_eq!(list_page.status, 200, "{query}: {}", list_page.body);
        list_page.body.contains(&format!("/partial-requests/{id}\""))
    };
    for (query, is_shown) in [
        ("state=failed&trigger=refresh&error=", true),
        ("state=done", false),
        ("trigger=claim", false),
        (&*format!("error={error}"), true),
        ("error=PartialItemsInvalidResponseError", false),
    ] {
        assert_eq!(is_listed(&mut browser, query).await, is_shown, "{query}");
    }
    let of_api = |listed: Value| listed["items"].as_array().unwrap().len();
    assert_eq!(of_api(demo.admin(&format!("/partial-requests?error={error}&trigger=refresh")).await), 1);
    let one = browser.get(&format!("/partial-requests/{id}")).await.body;
    for shown in
        [error, "answered with a status other than 2xx", "<dd>500</dd>", "<code dir=\"auto\">p1</code>"]
    {
        assert!(one.contains(shown), "{shown}: {one}");
    }
}
