//! Requests of clients beside items, reports and appeals: contents of the legacy endpoint and actions of the platform.

use anyhow::{Context as _, Result, bail};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::{
    load::{Load, text, user},
    oracle::{Content, Reply, SentItem},
    outcomes::Outcome,
    own_actions::{OWN_ACTION, SentAction},
    seeded::Seeded,
};

/// Most actions of a request.
const BATCH: u64 = 4;

impl Load {
    /// Sends a content, and waits for its outcome in three of four requests.
    pub(crate) async fn content(&self, id: &str, seeded: &mut Seeded) -> Result<()> {
        let content = *seeded.pick(&[Content::Plain, Content::Scam, Content::Scam, Content::Threat]);
        let (item, user) = (format!("{id}-content"), user(seeded));
        self.sent.lock().unwrap().items.insert(item.clone(), SentItem::new(&user, content));
        let is_sync = seeded.below(4) > 0;
        let body = json!({
            "contentType": "post",
            "contentId": item,
            "content": self.data(&item, content, &user),
            "userId": user,
            "sync": is_sync,
        });
        let key = (seeded.below(2) == 0).then_some(id);
        let success_status = if is_sync { StatusCode::OK } else { StatusCode::ACCEPTED };
        let Some(answer) = self.send("/api/v1/content", &body, key, success_status).await? else {
            return Ok(());
        };
        let mut requests = self.sent.lock().unwrap();
        let submission = answer["submissionId"].as_str().map(str::to_owned);
        if let Some(submission) = &submission {
            requests.outcomes.insert(submission.clone(), Outcome::answered(&answer));
        }
        let item = requests.items.get_mut(&item).context("a content that was sent")?;
        (item.reply, item.submission) = (Reply::Accepted, submission);
        Ok(())
    }

    /// Sends one action or several, some on users that other requests act on. Half of the keyed requests are repeated
    /// after their acceptance and must have the same answer.
    pub(crate) async fn own_actions(&self, id: &str, seeded: &mut Seeded) -> Result<()> {
        let count = 1 + seeded.below(BATCH);
        let is_single = count == 1 && seeded.below(2) == 0;
        let (mut notes, mut actions) = (Vec::new(), Vec::new());
        for position in 0..count {
            let note = format!("{id}-a{position}");
            let user = if seeded.below(3) == 0 {
                format!("banned-{}", seeded.below(40))
            } else {
                format!("own-{note}")
            };
            actions
                .push(json!({ "actionId": OWN_ACTION, "itemId": user, "itemTypeId": "user", "note": note }));
            let action = SentAction { user, reply: Reply::Missing, decision: None };
            self.sent.lock().unwrap().own_actions.insert(note.clone(), action);
            notes.push(note);
        }
        let body = if is_single { actions.remove(0) } else { json!({ "actions": actions }) };
        let key = (seeded.below(2) == 0).then_some(id);
        let path = "/api/v1/actions";
        let Some(answer) = self.send(path, &body, key, StatusCode::ACCEPTED).await? else { return Ok(()) };
        self.record_accepted_actions(&notes, &answer)?;
        if key.is_some() && seeded.below(2) == 0 {
            let repeated_answer = self.send(path, &body, key, StatusCode::ACCEPTED).await?;
            if repeated_answer.as_ref() != Some(&answer) {
                bail!("a repeated request is answered {repeated_answer:?} instead of {answer}");
            }
        }
        Ok(())
    }

    fn record_accepted_actions(&self, notes: &[String], answer: &Value) -> Result<()> {
        let answered_actions = answer["actions"].as_array().context("an answer names its actions")?;
        let mut requests = self.sent.lock().unwrap();
        for (at, note) in notes.iter().enumerate() {
            let action = requests.own_actions.get_mut(note).context("an action that was sent")?;
            let answered =
                answered_actions.get(at).with_context(|| format!("action {at} is missing in {answer}"))?;
            if text(answered, "itemId")? != action.user {
                bail!("the answer does not stand for the actions: {answer}");
            }
            (action.reply, action.decision) =
                (Reply::Accepted, Some(text(answered, "decisionId")?.to_owned()));
        }
        Ok(())
    }
}
