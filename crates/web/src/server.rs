//! HTTP server: its settings, the budgets shared by its requests, and its counters.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::Counter;
use tidegate_scheduler::{BudgetRefusal, FairBudget};
use tidegate_schemas::ids::OrgId;

use crate::{
    Problem, Settings, SettingsError,
    metrics::{body_bytes_gauge, limit_counter, unsent_bytes_gauge},
};

/// HTTP server. Clones refer to the same server.
#[derive(Clone)]
pub struct HttpServer(Arc<Inner>);

struct Inner {
    name: &'static str,
    settings: Settings,
    body_budget: FairBudget,
    answer_budget: FairBudget,
    requests: AtomicU64,
    refused_by_total: AtomicU64,
    refused_by_share: AtomicU64,
    refused_by_lag: AtomicU64,
    limit_counters: [Counter; Limit::ALL.len()],
}

/// Limit that ended a request, stream or connection; the label `limit` of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    BodyShare,
    BodyTotal,
    BodyPace,
    AnswerShare,
    AnswerTotal,
    AnswerStall,
    WaitShare,
    WaitTotal,
    LagShare,
    ConnectionShare,
    Connections,
    Streams,
    SignIn,
}

impl Limit {
    const ALL: [(Self, &'static str); 13] = [
        (Self::BodyShare, "body_share"),
        (Self::BodyTotal, "body_total"),
        (Self::BodyPace, "body_pace"),
        (Self::AnswerShare, "answer_share"),
        (Self::AnswerTotal, "answer_total"),
        (Self::AnswerStall, "answer_stall"),
        (Self::WaitShare, "wait_share"),
        (Self::WaitTotal, "wait_total"),
        (Self::LagShare, "lag_share"),
        (Self::ConnectionShare, "connection_share"),
        (Self::Connections, "connections"),
        (Self::Streams, "streams"),
        (Self::SignIn, "sign_in"),
    ];
}

/// Number of requests since the start, in total and refused by budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub requests: u64,
    /// Refused because the whole budget was in use.
    pub refused: u64,
    /// Refused because the organisation or connection held its share.
    pub refused_by_share: u64,
    /// Refused because processing is behind.
    pub refused_by_lag: u64,
}

impl HttpServer {
    /// `name` is the label `server` of metrics.
    pub fn new(name: &'static str, settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        Ok(Self(Arc::new(Inner {
            name,
            body_budget: FairBudget::new(settings.in_flight_bytes, body_bytes_gauge(name)),
            answer_budget: FairBudget::new(settings.unsent_bytes, unsent_bytes_gauge(name)),
            requests: AtomicU64::default(),
            refused_by_total: AtomicU64::default(),
            refused_by_share: AtomicU64::default(),
            refused_by_lag: AtomicU64::default(),
            limit_counters: Limit::ALL.map(|(_, label)| limit_counter(name, label)),
            settings,
        })))
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn name(&self) -> &'static str {
        self.0.name
    }

    /// Budget for received bytes of bodies.
    pub fn body_budget(&self) -> &FairBudget {
        &self.0.body_budget
    }

    /// Budget for unsent bytes of answers.
    pub fn answer_budget(&self) -> &FairBudget {
        &self.0.answer_budget
    }

    pub fn request_counts(&self) -> RequestCounts {
        RequestCounts {
            requests: self.0.requests.load(Ordering::Relaxed),
            refused: self.0.refused_by_total.load(Ordering::Relaxed),
            refused_by_share: self.0.refused_by_share.load(Ordering::Relaxed),
            refused_by_lag: self.0.refused_by_lag.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn count_request(&self) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request, stream or connection ended by a limit.
    pub fn count_limited(&self, limit: Limit) {
        self.0.limit_counters[limit as usize].increment(1);
        match limit {
            Limit::BodyTotal | Limit::AnswerTotal | Limit::WaitTotal => {
                self.0.refused_by_total.fetch_add(1, Ordering::Relaxed);
            }
            Limit::LagShare => {
                self.0.refused_by_lag.fetch_add(1, Ordering::Relaxed);
            }
            Limit::BodyShare | Limit::AnswerShare | Limit::WaitShare => {
                self.0.refused_by_share.fetch_add(1, Ordering::Relaxed);
            }
            // Not counted as refused requests: these end a request in progress, or concern connections and streams.
            Limit::BodyPace
            | Limit::AnswerStall
            | Limit::ConnectionShare
            | Limit::Connections
            | Limit::Streams
            | Limit::SignIn => {}
        }
    }

    /// Counts a refusal and builds its answer. `resource` is the subject of the message.
    pub(crate) fn refuse(
        &self,
        refusal: BudgetRefusal,
        [share_limit, total_limit]: [Limit; 2],
        resource: &str,
    ) -> Problem {
        let (limit, detail) = match refusal {
            BudgetRefusal::Share => (
                share_limit,
                format!(
                    "The organisation or the connection uses its full share of {resource}: make fewer requests at once."
                ),
            ),
            BudgetRefusal::Total => (
                total_limit,
                format!("All clients together have reached the limit for {resource}: try again later."),
            ),
        };
        self.count_limited(limit);
        Problem::unavailable(detail, std::time::Duration::from_secs(1))
    }
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

/// Organisation of an answer, as an extension of the answer: unsent bytes count for it.
#[derive(Clone, Debug)]
pub struct AnswerOrg(pub OrgId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_its_counter() {
        for (at, (limit, _)) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, at);
        }
    }
}
