//! Queue of a planned job.

use serde::{Deserialize, Serialize};
use tidegate_catalog::ActionKind;
use tidegate_schemas::{ids::QueueId, records::JobClass};

use crate::jobs::BuiltInQueue;

/// Queue of a planned job. The variant is the job's class.
///
/// The child-safety variant is stored as an object on purpose: a process of an earlier version then rejects the plan
/// instead of opening a review job that every reviewer may see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PlannedQueue {
    Review(QueueId),
    ChildSafety {
        #[serde(rename = "childSafety")]
        queue: QueueId,
    },
}

impl PlannedQueue {
    /// Returns the queue for jobs of an action kind; `None` if the action opens no job.
    pub(crate) fn of(kind: &ActionKind) -> Option<Self> {
        let or_built_in = |queue: &Option<QueueId>, built_in: BuiltInQueue| {
            queue.clone().unwrap_or_else(|| built_in.into())
        };
        match kind {
            ActionKind::Callback { .. } => None,
            ActionKind::EnqueueReview { queue } => {
                Some(Self::Review(or_built_in(queue, BuiltInQueue::Default)))
            }
            ActionKind::EnqueueChildSafety { queue } => {
                Some(Self::ChildSafety { queue: or_built_in(queue, BuiltInQueue::ChildSafety) })
            }
        }
    }

    pub fn id(&self) -> &QueueId {
        match self {
            Self::Review(queue) | Self::ChildSafety { queue } => queue,
        }
    }

    pub fn class(&self) -> JobClass {
        match self {
            Self::Review(_) => JobClass::Review,
            Self::ChildSafety { .. } => JobClass::ChildSafety,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_queue_of_child_safety_is_stored_as_an_object() {
        let review = PlannedQueue::Review("spam".into());
        let child_safety = PlannedQueue::of(&ActionKind::EnqueueChildSafety { queue: None }).unwrap();
        for (queue, stored, class) in [
            (review, r#""spam""#, JobClass::Review),
            (child_safety, r#"{"childSafety":"child-safety"}"#, JobClass::ChildSafety),
        ] {
            assert_eq!(serde_json::to_string(&queue).unwrap(), stored);
            assert_eq!(serde_json::from_str::<PlannedQueue>(stored).unwrap(), queue);
            assert_eq!(queue.class(), class);
        }
        assert!(serde_json::from_str::<QueueId>(r#"{"childSafety":"child-safety"}"#).is_err());
    }
}
