//! Reads the limits on the effects of a rule's matches.

use serde_json::Value as Json;

use crate::{
    enforcement::{ActionLimits, Enforcement, MAX_COOLDOWN, OnError, Rollout, RolloutBy, Share},
    facts::Lookback,
    reader::{Object, Reader},
};

impl Reader<'_> {
    /// Reads them from the document of the rule.
    pub(super) fn enforcement(&mut self, object: &Object) -> Enforcement {
        let rollout = self.optional(object, "rollout", Self::rollout);
        let limits = self.optional(object, "limits", Self::action_limits);
        let review_sample = self.optional(object, "review_sample", Self::share);
        let on_error = self.optional(object, "on_error", |r, v| {
            let names = [
                ("not_matched", OnError::NotMatched),
                ("matched", OnError::Matched),
                ("review", OnError::Review),
            ];
            r.name(v, &names)
        });
        Enforcement {
            rollout,
            limits: limits.unwrap_or_default(),
            review_sample,
            on_error: on_error.unwrap_or_default(),
        }
    }

    fn share(&mut self, value: &Json) -> Option<Share> {
        let share = value.as_f64().and_then(Share::from_percent);
        share.or_else(|| self.error("type", "expected a percentage from 0 to 100 with at most two decimals"))
    }

    fn rollout(&mut self, value: &Json) -> Option<Rollout> {
        let object = self.object(value, &["percent", "salt", "by"])?;
        let share = self.required(object, "percent", Self::share);
        let salt = self.optional(object, "salt", |r, v| r.text(v).map(str::to_owned));
        let by = self.optional(object, "by", |r, v| {
            r.name(v, &[("item", RolloutBy::Item), ("user", RolloutBy::User)])
        });
        Some(Rollout { share: share?, salt, by: by.unwrap_or_default() })
    }

    fn action_limits(&mut self, value: &Json) -> Option<ActionLimits> {
        let object = self.object(value, &["actions_per_day", "per_user_cooldown", "alarm_per_hour"])?;
        let number = |r: &mut Self, v: &Json| {
            let number = v.as_i64().filter(|number| (1..=i64::from(u32::MAX)).contains(number));
            number.or_else(|| r.error("type", "expected a whole number from 1"))
        };
        let actions_per_day = self.optional(object, "actions_per_day", number);
        let alarm_per_hour = self.optional(object, "alarm_per_hour", number);
        let per_user_cooldown = self.optional(object, "per_user_cooldown", |r, v| {
            let span = Lookback::parse(r.text(v)?).filter(|span| *span <= MAX_COOLDOWN);
            span.or_else(|| r.error("type", "expected a span from 1s to 90d, such as 24h"))
        });
        Some(ActionLimits { actions_per_day, per_user_cooldown, alarm_per_hour })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::parse;
    use crate::limits::Limits;

    fn errors(life: &serde_json::Value) -> Vec<String> {
        let mut rule = json!({"rule": "r", "when": {"strikes": {"gte": 1}}});
        for (key, value) in life.as_object().into_iter().flatten() {
            rule[key] = value.clone();
        }
        let errors = parse(&rule, &Limits::default()).err().unwrap_or_default();
        errors.iter().map(|error| format!("{} {}", error.pointer, error.tag())).collect()
    }

    #[test]
    fn errors_of_limits_and_rollouts_have_their_path() {
        for (life, wanted) in [
            (json!({"rollout": {"percent": 101}}), "/rollout/percent type"),
            (json!({"rollout": {"percent": 0.001}}), "/rollout/percent type"),
            (json!({"rollout": {"salt": "s"}}), "/rollout shape"),
            (json!({"rollout": {"percent": 1, "by": "org"}}), "/rollout/by unknown_value"),
            (json!({"rollout": 20}), "/rollout shape"),
            (json!({"limits": {"actions_per_day": 0}}), "/limits/actions_per_day type"),
            (json!({"limits": {"per_user_cooldown": "91d"}}), "/limits/per_user_cooldown type"),
            (json!({"limits": {"per_hour": 1}}), "/limits/per_hour unknown_key"),
            (json!({"limits": {"alarm_per_hour": 0}}), "/limits/alarm_per_hour type"),
            (json!({"review_sample": -1}), "/review_sample type"),
            (json!({"on_error": "ignore"}), "/on_error unknown_value"),
        ] {
            assert_eq!(errors(&life), [wanted], "{life}");
        }
        let good = json!({
            "rollout": {"percent": 12.5, "salt": "s", "by": "user"}, "review_sample": 2, "on_error": "matched",
            "limits": {"actions_per_day": 5, "per_user_cooldown": "90d"},
        });
        assert_eq!(errors(&good), [""; 0]);
    }
}
