//! Policies that a job is about: those of its reports, rules and appeals.

use std::collections::BTreeSet;

use serde::Deserialize;
use tidegate_schemas::ids::{OrgId, PolicyId};
use tidegate_store::{
    Store,
    tables::review::{appeals::Appeal, jobs::JobCause, reports::Report},
};

use crate::Error;

/// Mention of a policy in a stored report or appeal.
#[derive(Deserialize)]
struct PolicyMention {
    id: PolicyId,
}

/// Returns the policies of the causes, sorted. For causes of earlier versions they are read from the reports and appeals.
pub(crate) async fn load_reviewed_policies(
    store: &Store,
    org: &OrgId,
    causes: &[JobCause],
) -> Result<Vec<PolicyId>, Error> {
    let mut policies = BTreeSet::new();
    for cause in causes {
        if let Some(text) = cause.policies.as_deref() {
            let cause_policies: Vec<PolicyId> = serde_json::from_str(text).map_err(Error::corrupt("job"))?;
            policies.extend(cause_policies);
        } else if let Some(report_id) = cause.report_id {
            let report = store.get::<Report>(&(org.clone(), report_id)).await?;
            if let Some(text) = report.and_then(|report| report.policy) {
                policies.insert(parse_policy(&text)?);
            }
        } else if let Some(appeal_id) = &cause.appeal_id {
            let appeal = store.get::<Appeal>(&(org.clone(), appeal_id.clone())).await?;
            if let Some(appeal) = appeal {
                policies.extend(parse_policies(&appeal.violating_policies)?);
            }
        }
    }
    Ok(policies.into_iter().collect())
}

/// Parses the policy of a stored report.
pub(crate) fn parse_policy(text: &str) -> Result<PolicyId, Error> {
    let mention: PolicyMention = serde_json::from_str(text).map_err(Error::corrupt("report"))?;
    Ok(mention.id)
}

/// Parses the policies of a stored appeal.
pub(crate) fn parse_policies(text: &str) -> Result<Vec<PolicyId>, Error> {
    let mentions: Vec<PolicyMention> = serde_json::from_str(text).map_err(Error::corrupt("appeal"))?;
    Ok(mentions.into_iter().map(|mention| mention.id).collect())
}
