//! Rows of the matrix: requests of the other organisation to each route, with the expected status.
//!
//! `<name>` stands for an id of the first organisation, and in a second request for one that does not exist. Requests that
//! only read are first, because the others create objects with those ids in the other organisation.

pub(crate) struct Row {
    /// Method and template, as the code has it; the platform's with its prefix.
    pub(crate) route: &'static str,
    /// Status, path with query, and body.
    pub(crate) requests: &'static [(u16, &'static str, &'static str)],
    /// True if the scope `review` opens the route of the admin API or the page.
    pub(crate) is_for_reviewers: bool,
}

pub(crate) const fn row(route: &'static str, requests: &'static [(u16, &'static str, &'static str)]) -> Row {
    Row { route, requests, is_for_reviewers: false }
}

const fn review(route: &'static str, requests: &'static [(u16, &'static str, &'static str)]) -> Row {
    Row { route, requests, is_for_reviewers: true }
}

/// Routes of the admin API.
pub(crate) const ADMIN: &[Row] = &[
    row("GET /audit", &[(200, "/audit", ""), (200, "/audit?object=/jobs/<job>", "")]),
    row("GET /banks", &[(200, "/banks", "")]),
    row("POST /banks/match", &[(404, "/banks/match", r#"{"hashes":{"md5":"<hash>"},"banks":["<hashes>"]}"#)]),
    row("GET /banks/{bank}/entries", &[(404, "/banks/<bank>/entries", "")]),
    row("POST /banks/{bank}/entries", &[(404, "/banks/<bank>/entries", r#"{"entries":["word"]}"#)]),
    row(
        "POST /banks/{bank}/entries/remove",
        &[
            (404, "/banks/<bank>/entries/remove", r#"{"ids":["<entry>"]}"#),
            (200, "/banks/shared/entries/remove", r#"{"ids":["<entry>"]}"#),
        ],
    ),
    row(
        "POST /banks/{bank}/entries/withdraw",
        &[(404, "/banks/<bank>/entries/withdraw", r#"{"entries":[{"value":"word","source":"x"}]}"#)],
    ),
    row(
        "POST /banks/{bank}/entries/enable",
        &[
            (404, "/banks/<bank>/entries/enable", r#"{"ids":["<entry>"]}"#),
            (200, "/banks/shared/entries/enable", r#"{"ids":["<entry>"]}"#),
        ],
    ),
    row(
        "POST /banks/{bank}/entries/disable",
        &[
            (404, "/banks/<bank>/entries/disable", r#"{"ids":["<entry>"]}"#),
            (200, "/banks/shared/entries/disable", r#"{"ids":["<entry>"]}"#),
        ],
    ),
    row("POST /banks/{bank}/enable", &[(404, "/banks/<bank>/enable", "")]),
    row("POST /banks/{bank}/disable", &[(404, "/banks/<bank>/disable", "")]),
    row("GET /config", &[(200, "/config", "")]),
    row("GET /config/wait", &[(200, "/config/wait?version=1&withinMs=1", "")]),
    row(
        "POST /config/validate",
        &[
            (409, "/config/validate", r#"{"files":[],"expectedOrg":"default"}"#),
            (
                400,
                "/config/validate",
                r#"{"files":[{"name":"a.yaml","text":"action: a\nkind: callback\nendpoint: <endpoint>"}]}"#,
            ),
        ],
    ),
    row("GET /dead-letters", &[(200, "/dead-letters", ""), (200, "/dead-letters?id=<letter>", "")]),
    row(
        "POST /dead-letters/replay",
        &[
            (404, "/dead-letters/replay", r#"{"id":"<letter>"}"#),
            (200, "/dead-letters/replay", r#"{"all":true}"#),
        ],
    ),
    row(
        "GET /deliveries",
        &[
            (200, "/deliveries", ""),
            (200, "/deliveries?typeId=post&itemId=<item>", ""),
            (200, "/deliveries?cursor=<deliveries>", ""),
        ],
    ),
    row("GET /deliveries/{event}", &[(404, "/deliveries/<event>", "")]),
    row("POST /deliveries/{event}/resend", &[(404, "/deliveries/<event>/resend", "")]),
    row("POST /deliveries/{event}/cancel", &[(404, "/deliveries/<event>/cancel", "")]),
    row("GET /endpoints", &[(200, "/endpoints", "")]),
    row("POST /endpoints/{key}/secret/reveal", &[(404, "/endpoints/<endpoint>/secret/reveal", "")]),
    row("GET /exports", &[(200, "/exports", "")]),
    row("GET /exports/{dataset}", &[(200, "/exports/reports", ""), (200, "/exports/audit", "")]),
    review("GET /items", &[(200, "/items?id=<item>", "")]),
    review(
        "GET /jobs",
        &[
            (200, "/jobs?state=all", ""),
            (200, "/jobs?queue=default&state=all", ""),
            (200, "/jobs?state=all&typeId=post&itemId=<reported>", ""),
            (200, "/jobs?state=all&appealId=<appeal>", ""),
            (200, "/jobs?queue=default&cursor=<jobs>", ""),
        ],
    ),
    review(
        "POST /jobs/claim-next",
        &[
            (204, "/jobs/claim-next", r#"{"queue":"default","reviewer":"eve"}"#),
            (204, "/jobs/claim-next", r#"{"queue":"<queue>","reviewer":"eve"}"#),
        ],
    ),
    review(
        "GET /jobs/{id}",
        &[(404, "/jobs/<job>", ""), (404, "/jobs/<decided>", ""), (404, "/jobs/<safety>", "")],
    ),
    review("GET /jobs/{id}/causes", &[(404, "/jobs/<job>/causes", ""), (404, "/jobs/<safety>/causes", "")]),
    review(
        "GET /jobs/{id}/partial-items",
        &[(404, "/jobs/<job>/partial-items", ""), (404, "/jobs/<safety>/partial-items", "")],
    ),
    review(
        "GET /jobs/{id}/comments",
        &[(404, "/jobs/<job>/comments", ""), (404, "/jobs/<safety>/comments", "")],
    ),
    review("POST /jobs/{id}/comments", &[(404, "/jobs/<job>/comments", r#"{"text":"said by a stranger"}"#)]),
    review("POST /jobs/{id}/escalate", &[(404, "/jobs/<job>/escalate", r#"{"reason":"of a stranger"}"#)]),
    review(
        "POST /jobs/{id}/move",
        &[
            (404, "/jobs/<job>/move", r#"{"queue":"default"}"#),
            (404, "/jobs/<safety>/move", r#"{"queue":"default"}"#),
        ],
    ),
    review("POST /jobs/{id}/skip", &[(404, "/jobs/<job>/skip", r#"{"epoch":1,"reviewer":"ann"}"#)]),
    review(
        "POST /jobs/{id}/claim",
        &[
            (404, "/jobs/<job>/claim", r#"{"reviewer":"eve"}"#),
            (404, "/jobs/<safety>/claim", r#"{"reviewer":"eve"}"#),
        ],
    ),
    review("POST /jobs/{id}/release", &[(404, "/jobs/<job>/release", r#"{"epoch":1,"reviewer":"ann"}"#)]),
    review(
        "POST /jobs/{id}/decisions",
        &[(404, "/jobs/<job>/decisions", r#"{"epoch":1,"verdict":"ignore","reviewer":"ann"}"#)],
    ),
    row("GET /keys", &[(200, "/keys", "")]),
    row("POST /keys", &[(201, "/keys", r#"{"name":"another"}"#)]),
    row("POST /keys/{id}/rotate", &[(404, "/keys/<key>/rotate", "")]),
    row("POST /keys/{id}/revoke", &[(404, "/keys/<key>/revoke", "")]),
    row("DELETE /keys/{id}", &[(404, "/keys/<key>", "")]),
    row("GET /members", &[(403, "/members", "")]),
    row("GET /orgs", &[(403, "/orgs", "")]),
    row("POST /orgs", &[(403, "/orgs", r#"{"id":"third"}"#)]),
    row("GET /partial-items", &[(200, "/partial-items", "")]),
    row("POST /partial-items/secret/reveal", &[(200, "/partial-items/secret/reveal", "")]),
    review("GET /partial-requests", &[(200, "/partial-requests", "")]),
    review("GET /partial-requests/{id}", &[(404, "/partial-requests/<request>", "")]),
    review("GET /policies", &[(200, "/policies", "")]),
    review("GET /queues", &[(200, "/queues", "")]),
    row(
        "POST /routing/explain",
        &[(404, "/routing/explain", r#"{"list":"reports","item":{"typeId":"post","id":"<item>"}}"#)],
    ),
    row(
        "POST /rules/backtest",
        &[(200, "/rules/backtest", r#"{"files":[],"since":"<since>","until":"<until>"}"#)],
    ),
    row(
        "POST /rules/baselines",
        &[(
            200,
            "/rules/baselines",
            r#"{"since":"<since>","until":"<until>","items":9,"rules":[{"rule":"<rule>","version":"1","hits":9,"busiestHour":9}]}"#,
        )],
    ),
    row(
        "POST /rules/explain",
        &[(404, "/rules/explain", r#"{"item":{"typeId":"post","id":"<item>"},"rule":"demo-scam"}"#)],
    ),
    row("GET /rules/retroactions", &[(200, "/rules/retroactions", "")]),
    row(
        "POST /rules/retroactions",
        &[(400, "/rules/retroactions", r#"{"rules":["<rule>"],"since":"<since>","dryRun":true}"#)],
    ),
    row("POST /rules/retroactions/{run}/step", &[(404, "/rules/retroactions/<run>/step", "")]),
    row("GET /rules/stats", &[(200, "/rules/stats", ""), (200, "/rules/stats?rule=<rule>", "")]),
    review("GET /users/{type}/{id}", &[(404, "/users/user/mallory", "")]),
    review("GET /users/{type}/{id}/items", &[(200, "/users/user/mallory/items", "")]),
    review("GET /users/{type}/{id}/jobs", &[(200, "/users/user/mallory/jobs", "")]),
    review(
        "GET /users/{type}/{id}/reports",
        &[(200, "/users/user/alice/reports", ""), (200, "/users/user/mallory/reports?side=received", "")],
    ),
    // The rows below create objects with the same ids in the other organisation.
    row(
        "PUT /config",
        &[
            (409, "/config", r#"{"files":[],"expectedOrg":"default","prune":true}"#),
            (200, "/config", r#"{"files":[{"name":"b.yaml","text":"queue: <queue>\nname: Others"}]}"#),
        ],
    ),
    row(
        "POST /config",
        &[(200, "/config", r#"{"files":[{"name":"c.yaml","text":"bank: <bank>\nkind: text"}]}"#)],
    ),
    review("POST /items/{type}/{id}/refresh", &[(202, "/items/post/<fetched>/refresh", "")]),
];

/// Pages of the console; a body is a form.
pub(crate) const PAGES: &[Row] = &[
    review("GET /", &[(303, "/", "")]),
    review("GET /style.css", &[(200, "/style.css", "")]),
    review("GET /sign-in", &[(200, "/sign-in", "")]),
    review("GET /queues", &[(200, "/queues", "")]),
    review(
        "GET /jobs",
        &[
            (200, "/jobs?state=all", ""),
            (200, "/jobs?state=all&queue=<queue>", ""),
            (200, "/jobs?state=all&typeId=post&itemId=<reported>", ""),
            (200, "/jobs?queue=default&state=all&cursor=<jobs>", ""),
        ],
    ),
    review(
        "GET /jobs/{id}",
        &[(404, "/jobs/<job>", ""), (404, "/jobs/<decided>", ""), (404, "/jobs/<safety>", "")],
    ),
    review("GET /jobs/{id}/causes", &[(404, "/jobs/<job>/causes", ""), (404, "/jobs/<safety>/causes", "")]),
    review(
        "GET /jobs/{id}/partial-items",
        &[(404, "/jobs/<job>/partial-items", ""), (404, "/jobs/<safety>/partial-items", "")],
    ),
    review(
        "GET /partial-requests",
        &[(200, "/partial-requests", ""), (200, "/partial-requests?state=done", "")],
    ),
    review("GET /partial-requests/{id}", &[(404, "/partial-requests/<request>", "")]),
    row("GET /settings/keys", &[(200, "/settings/keys", "")]),
    row("GET /settings/keys/new", &[(200, "/settings/keys/new", "")]),
    row("POST /settings/keys", &[(201, "/settings/keys", "name=another&scopes=items:read&once=1")]),
    row("GET /settings/keys/{id}/rotate", &[(404, "/settings/keys/<key>/rotate", "")]),
    row("POST /settings/keys/{id}/rotate", &[(404, "/settings/keys/<key>/rotate", "hours=0&once=2")]),
    row("GET /settings/keys/{id}/revoke", &[(404, "/settings/keys/<key>/revoke", "")]),
    row("POST /settings/keys/{id}/revoke", &[(404, "/settings/keys/<key>/revoke", "")]),
    row("GET /settings/partial-items", &[(200, "/settings/partial-items", "")]),
    review("POST /sign-in", &[(401, "/sign-in", "key=odd")]),
    // The sign-out ends the session, so this row is last.
    review("POST /sign-out", &[(303, "/sign-out", "")]),
];

/// Routes of the platform API.
pub(crate) const PLATFORM: &[Row] = &[
    row(
        "GET /api/v1/items/{type_id}/{id}",
        &[(404, "/items/post/<item>", ""), (404, "/items/post/<item>?submission=<submission>", "")],
    ),
    row("GET /api/v1/policies", &[(200, "/policies", "")]),
    row(
        "POST /api/v1/items/async",
        &[(
            202,
            "/items/async",
            r#"{"items":[{"id":"<item>","typeId":"post","data":{"text":"scamcoin of a stranger","author":{"id":"mallory","typeId":"user"}}}]}"#,
        )],
    ),
    row(
        "POST /api/v1/content",
        &[(
            200,
            "/content",
            r#"{"contentType":"post","contentId":"<reported>","content":{"text":"of a stranger"},"userId":"mallory"}"#,
        )],
    ),
    row(
        "POST /api/v1/actions",
        &[
            (202, "/actions", r#"{"actionId":"remove","itemId":"<item>","itemTypeId":"post"}"#),
            (
                400,
                "/actions",
                r#"{"actionId":"remove","itemId":"x","itemTypeId":"post","policyIds":["<policy>"]}"#,
            ),
        ],
    ),
    row(
        "POST /api/v1/report",
        &[(
            201,
            "/report",
            r#"{"reporter":{"kind":"user","id":"bob","typeId":"user"},"reportedAt":"2026-01-02T03:04:05Z",
                "reportedItem":{"id":"<reported>","typeId":"post","data":{"text":"of a stranger"}}}"#,
        )],
    ),
    row(
        "POST /api/v1/report/appeal",
        &[(
            204,
            "/report/appeal",
            r#"{"appealId":"<appeal>","appealedBy":{"id":"bob","typeId":"user"},"appealedAt":"2026-01-02T03:04:05Z",
                "actionedItem":{"id":"<reported>","typeId":"post","data":{"text":"of a stranger"}},"actionsTaken":["remove"]}"#,
        )],
    ),
];
