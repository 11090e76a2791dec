//! `POST /api/v1/report`: a report into the log.
//!
//! It opens no job; the consumer of the topic does.

use axum::http::StatusCode;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{Kind, Millis, OrgId, ReportId, derive},
    json::{Node, in_order},
    records,
    validation_error::{Pointer, ValidationError, ValidationErrors},
    wire::{self, answers::ReportCreated, items::SubmittedItem, reports::ReportRequest},
};
use tidegate_stream::{Record, Topic};
use tidegate_web::{Json, Problem};

use crate::{
    Api, Shared,
    admission::{Admitted, Received},
    config, context,
    idempotency::Digest,
    items,
};

type Report = wire::Request<ReportRequest>;

pub(crate) async fn submit(
    api: Shared,
    admitted: Admitted,
) -> Result<(StatusCode, Json<ReportCreated>), Problem> {
    let received = api.receive(admitted).await?;
    let report = api.checked_report(&received).await?;
    let key = report.item.key().log_key(&report.org);
    let partition = api.deps.log.partition(Topic::Reports, &key);
    let appended = api.deps.log.append(&[(partition, Record::of(&key, &report))]).await;
    appended.map_err(|error| api.append_problem(&error))?;
    tidegate_stream::failpoint!("after_append");
    Ok((StatusCode::CREATED, Json(ReportCreated { report_id: report.report_id })))
}

impl Api {
    async fn checked_report(&self, received: &Received) -> Result<records::Report, Problem> {
        let (body, limits) = (received.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parsed = match self.work(size, move || wire::reports::parse(&body, &limits)).await? {
            Ok(parsed) => parsed,
            Err(refused) => return Err(self.refused(received, refused).await),
        };
        let config = self.config(&received.org, |config| all_known(config, &parsed.content)).await?;
        let digest = received.digest(parsed.root());
        let header = Header {
            org: received.org.clone(),
            report_id: report_id(received, digest.as_ref()),
            keyed: received.key.is_some(),
            received_at: received.received_at,
            request_id: received.request_id.to_string(),
        };
        let checked = self.work(size, move || {
            check(&config, &parsed)?;
            Ok::<_, Vec<ValidationError>>(record(&config, &parsed, header))
        });
        let report = checked.await?.map_err(Problem::from)?;
        self.claim_key(received, "report", digest.as_ref()).await?;
        Ok(report)
    }
}

/// Random, or with an idempotency key the same for the same body.
fn report_id(received: &Received, digest: Option<&Digest>) -> ReportId {
    match (&received.key, digest) {
        (Some(key), Some(digest)) => {
            derive(Kind::Report, &[received.org.as_str().as_bytes(), key.as_bytes(), digest])
        }
        _ => ReportId::random(),
    }
}

/// Parts of the record that are not in the body.
struct Header {
    org: OrgId,
    report_id: ReportId,
    keyed: bool,
    received_at: Millis,
    request_id: String,
}

fn all_known(config: &Compiled, report: &ReportRequest) -> bool {
    let item = &report.item;
    config::knows(config, &item.type_id, item.type_version.as_deref())
        && report.policy_id.as_ref().is_none_or(|id| config::policy(config, id).known)
        && context::all_known(config, &report.thread)
        && context::all_known(config, &report.additional)
}

fn check(config: &Compiled, parsed: &Report) -> Result<(), Vec<ValidationError>> {
    let mut faults = ValidationErrors::default();
    let report = &parsed.content;
    let root = parsed.root();
    main_item(config, root, &report.item, "reportedItem", &mut faults);
    in_order(faults, root).or(Some(()))
}

/// The item that a request is about: whole, whatever variant it names.
pub(crate) fn main_item(
    config: &Compiled,
    root: Node<'_>,
    item: &SubmittedItem,
    key: &str,
    faults: &mut ValidationErrors,
) {
    let at = &Pointer::Root.key(key);
    let named = (&item.type_id, item.type_version.as_deref());
    if let Some(item_type) = config::item_type(config, named, root.get(key), at, faults) {
        item_type.judge(item.data_in(root), item.mode(), &at.key("data"), faults);
    }
}

fn record(config: &Compiled, parsed: &Report, header: Header) -> records::Report {
    let report = &parsed.content;
    let Header { org, report_id, keyed, received_at, request_id } = header;
    let submission_id = derive(Kind::Submission, &[b"report", report_id.as_bytes()]);
    records::Report {
        org,
        config_version: config.version(),
        report_id,
        keyed,
        received_at,
        request_id,
        reported_at: report.reported_at,
        reporter: report.reporter.clone(),
        item: items::entry(report.item.clone(), submission_id, keyed),
        policy_id: report.policy_id.as_ref().map(|id| config::policy(config, id)),
        reason: report.reason.clone(),
        csam: report.csam,
        thread: context::checked(config, parsed, &report.thread),
        reported_in_thread: report.reported_in_thread.clone(),
        additional: context::checked(config, parsed, &report.additional),
    }
}
