//! `POST /api/v1/report`: appends a report to the log. The topic's consumer opens the job.

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
    admission::{AdmittedRequest, ReceivedRequest},
    config, context,
    idempotency::Digest,
    items,
};

type Report = wire::Request<ReportRequest>;

pub(crate) async fn submit(
    api: Shared,
    admitted: AdmittedRequest,
) -> Result<(StatusCode, Json<ReportCreated>), Problem> {
    let request = api.receive_request(admitted).await?;
    let report = api.validate_report(&request).await?;
    let key = report.item.key().log_key(&report.org);
    let partition = api.deps.log.partition(Topic::Reports, &key);
    let append_result = api.deps.log.append(&[(partition, Record::from_content(&key, &report))]).await;
    append_result.map_err(|error| api.append_problem(&error))?;
    tidegate_stream::failpoint!("after_append");
    Ok((StatusCode::CREATED, Json(ReportCreated { report_id: report.report_id })))
}

impl Api {
    async fn validate_report(&self, request: &ReceivedRequest) -> Result<records::Report, Problem> {
        let (body, limits) = (request.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parsed_body =
            match self.offload_if_large(size, move || wire::reports::parse(&body, &limits)).await? {
                Ok(body) => body,
                Err(rejection) => return Err(self.rejection_problem(request, rejection).await),
            };
        let config =
            self.load_config(&request.org, |config| has_all_references(config, &parsed_body.content)).await?;
        let digest = request.digest(parsed_body.root());
        let envelope = ReportEnvelope {
            org: request.org.clone(),
            report_id: derive_report_id(request, digest.as_ref()),
            is_keyed: request.key.is_some(),
            received_at: request.received_at,
            request_id: request.request_id.to_string(),
        };
        let build_result = self.offload_if_large(size, move || {
            check_report(&config, &parsed_body)?;
            Ok::<_, Vec<ValidationError>>(build_record(&config, &parsed_body, envelope))
        });
        let report = build_result.await?.map_err(Problem::from)?;
        // After the validation: an invalid request must not claim its key, so the client can correct it.
        self.claim_key(request, "report", digest.as_ref()).await?;
        Ok(report)
    }
}

/// Returns a random id, or with an idempotency key an id derived from key and body.
fn derive_report_id(request: &ReceivedRequest, digest: Option<&Digest>) -> ReportId {
    match (&request.key, digest) {
        (Some(key), Some(digest)) => {
            derive(Kind::Report, &[request.org.as_str().as_bytes(), key.as_bytes(), digest])
        }
        _ => ReportId::random(),
    }
}

/// Fields of the record that are not in the body.
struct ReportEnvelope {
    org: OrgId,
    report_id: ReportId,
    is_keyed: bool,
    received_at: Millis,
    request_id: String,
}

fn has_all_references(config: &Compiled, report: &ReportRequest) -> bool {
    let item = &report.item;
    config::has_item_type(config, &item.type_id, item.type_version.as_deref())
        && report.policy_id.as_ref().is_none_or(|id| config::mention_policy(config, id).known)
        && context::has_all_types(config, &report.thread)
        && context::has_all_types(config, &report.additional)
}

fn check_report(config: &Compiled, parsed_body: &Report) -> Result<(), Vec<ValidationError>> {
    let mut faults = ValidationErrors::default();
    let report = &parsed_body.content;
    let root = parsed_body.root();
    check_main_item(config, root, &report.item, "reportedItem", &mut faults);
    in_order(faults, root).or(Some(()))
}

/// Validates the item that a report or an appeal is about, against its type and in its own mode.
pub(crate) fn check_main_item(
    config: &Compiled,
    root: Node<'_>,
    item: &SubmittedItem,
    key: &str,
    faults: &mut ValidationErrors,
) {
    let pointer = &Pointer::Root.key(key);
    let type_reference = (&item.type_id, item.type_version.as_deref());
    if let Some(item_type) = config::check_item_type(config, type_reference, root.get(key), pointer, faults) {
        item_type.check_scanned(item.data_in(root), item.mode(), &pointer.key("data"), faults);
    }
}

fn build_record(config: &Compiled, parsed_body: &Report, envelope: ReportEnvelope) -> records::Report {
    let report = &parsed_body.content;
    let ReportEnvelope { org, report_id, is_keyed: keyed, received_at, request_id } = envelope;
    // Derived, so a replay of the report submits the same item once.
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
        item: items::build_entry(report.item.clone(), submission_id, keyed),
        policy_id: report.policy_id.as_ref().map(|id| config::mention_policy(config, id)),
        reason: report.reason.clone(),
        csam: report.csam,
        thread: context::check_context_items(config, parsed_body, &report.thread),
        reported_in_thread: report.reported_in_thread.clone(),
        additional: context::check_context_items(config, parsed_body, &report.additional),
    }
}
