//! All rules of an organisation as one plan, evaluated in two phases around the caller's look-ups.
//!
//! This is the seam: a faster engine changes how `scan` and `finish` arrive at an outcome, and nothing outside.

use std::{collections::HashSet, convert::Infallible, sync::Arc};

use serde_json::Value as Json;
use tidegate_schemas::ids::{ItemKey, PolicyId, RuleId};

use crate::{
    compile::{self, Rule},
    evaluate::{self, Mask},
    explain::{self, CutExplained, Explained, Verdict},
    facts::{Facts, Need},
    faults::{Fault, Warning},
    form::{ActionUse, Status, Test},
    item::Item,
    leaves::{Leaf, Scene},
    limits::{Limits, Spent, Steps},
    outcome::{Errored, Match, Outcome},
    views::{Path, Views},
    vocabulary::Vocabulary,
};

/// A rule's document, and the version that its matches are booked under.
#[derive(Clone, Copy, Debug)]
pub struct RuleSource<'a> {
    /// Its `policies` are the service's ids: the caller has put them in the place of the keys.
    pub document: &'a Json,
    /// A hash of the content, made by the caller.
    pub version: &'a str,
}

/// What a rule is called and leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleHead {
    pub rule: RuleId,
    pub name: String,
    pub version: String,
    pub status: Status,
    pub policies: Vec<PolicyId>,
    pub actions: Vec<ActionUse>,
}

/// Compiled rules. Immutable; one serves all threads.
#[derive(Debug)]
pub struct Plan {
    rules: Vec<Arc<Rule>>,
    paths: Vec<Path>,
    limits: Limits,
}

/// What is known after looking at the item alone. It owns what it needs, so the item may go.
#[derive(Debug)]
pub struct Scan {
    entries: Vec<Entry>,
    user: Option<ItemKey>,
    needs: Vec<Need>,
    truncated: Vec<String>,
    limits: Limits,
}

#[derive(Debug)]
enum Entry {
    Errored(Arc<Rule>),
    /// Passed, or waiting for facts. The explained leaves are in document order.
    Open {
        rule: Arc<Rule>,
        leaves: Vec<Mask>,
        explained: Vec<Explained>,
    },
}

impl Scan {
    /// What must be looked up before the plan can be finished; each need once.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }
}

impl Plan {
    /// Compiles rule documents, in the order in which their outcomes will be listed.
    pub fn compile(
        rules: &[RuleSource<'_>],
        vocabulary: &Vocabulary,
        limits: &Limits,
    ) -> Result<(Self, Vec<Warning>), Vec<Fault>> {
        let compiled = compile::compile(rules, vocabulary, limits)?;
        let plan = Self { rules: compiled.rules, paths: compiled.paths, limits: limits.clone() };
        Ok((plan, compiled.warnings))
    }

    /// The rules that are evaluated, in order.
    pub fn rules(&self) -> impl Iterator<Item = &RuleHead> {
        self.rules.iter().map(|rule| &rule.head)
    }

    pub(crate) fn tests(&self) -> impl Iterator<Item = (&Arc<Rule>, &[Test])> {
        self.rules.iter().map(|rule| (rule, rule.tests.as_slice()))
    }

    /// Decides what the item alone decides, and says what else must be known.
    pub fn scan(&self, item: &Item<'_>) -> Scan {
        self.scan_these(item, self.rules.iter().filter(|rule| rule.concerns(item)))
    }

    pub(crate) fn scan_these<'p>(
        &'p self,
        item: &Item<'_>,
        rules: impl Iterator<Item = &'p Arc<Rule>>,
    ) -> Scan {
        let scene = Scene {
            views: Views::new(item.values, &self.paths, self.limits.text_bytes),
            user: item.user,
            limits: &self.limits,
        };
        let mut steps = Steps::new(&self.limits);
        let mut asked = HashSet::new();
        let mut scan = Scan {
            entries: Vec::new(),
            user: item.user.cloned(),
            needs: Vec::new(),
            truncated: Vec::new(),
            limits: self.limits.clone(),
        };
        let mut leaves = Vec::new();
        for rule in rules {
            match evaluate::judge(rule, &scene, &mut steps, &mut leaves) {
                Err(Spent) => scan.entries.push(Entry::Errored(Arc::clone(rule))),
                // Facts could still make it fail in another way, but never match.
                Ok(mask) if !mask.may_pass() => {}
                Ok(mask) => {
                    if mask != Mask::PASSED {
                        ask(rule, &leaves, item.user, &mut asked, &mut scan.needs);
                    }
                    evaluate::complete(rule, &scene, &mut steps, &mut leaves);
                    let explained = rule.leaves.iter().zip(&leaves);
                    let explained =
                        explained.map(|(leaf, known)| leaf.explain(*known, &scene, &mut steps)).collect();
                    scan.entries.push(Entry::Open {
                        rule: Arc::clone(rule),
                        leaves: std::mem::take(&mut leaves),
                        explained,
                    });
                }
            }
        }
        scan.truncated = scene.views.truncated();
        scan
    }

    /// Decides the rest with what was looked up.
    pub fn finish(&self, scan: Scan, facts: &Facts) -> Outcome {
        let Scan { entries, user, truncated, limits, .. } = scan;
        let mut outcome = Outcome { truncated, ..Outcome::default() };
        let mut explained = 0;
        for entry in entries {
            let failure = match entry {
                Entry::Errored(rule) => Some((rule, "deadline".to_owned())),
                Entry::Open { rule, leaves, explained: leaves_explained } => {
                    match settle(&rule, leaves, leaves_explained, user.as_ref(), facts) {
                        (Mask::PASSED, leaves, _) => {
                            let tree = explain::tree(&rule.when, &mut leaves.into_iter());
                            explained += tree.size();
                            let fits = explained <= limits.explained;
                            outcome.matched.push(matched(&rule.head, if fits { tree } else { cut() }));
                            None
                        }
                        (Mask::ERRORED, _, reason) => Some((rule, reason.unwrap_or_default())),
                        _ => None,
                    }
                }
            };
            if let Some((rule, reason)) = failure {
                if outcome.errored.len() < limits.errored {
                    outcome.errored.push(errored(&rule.head, reason));
                } else {
                    outcome.errored_more += 1;
                }
            }
        }
        outcome
    }
}

impl Rule {
    fn concerns(&self, item: &Item<'_>) -> bool {
        self.on.contains(&item.on)
            && (self.item_types.is_empty() || self.item_types.contains(item.type_id))
            && self.expires_at.is_none_or(|end| item.now < end)
    }
}

fn ask(
    rule: &Rule,
    leaves: &[Mask],
    user: Option<&ItemKey>,
    asked: &mut HashSet<Need>,
    needs: &mut Vec<Need>,
) {
    let Some(user) = user else { return };
    for (leaf, mask) in rule.leaves.iter().zip(leaves) {
        if let (Leaf::Strikes(strikes), &Mask::PENDING) = (leaf, mask) {
            let need = strikes.need(user);
            if asked.insert(need.clone()) {
                needs.push(need);
            }
        }
    }
}

/// The rule's outcome, its leaves with the facts in them, and the first reason for which a fact is missing.
fn settle(
    rule: &Rule,
    mut leaves: Vec<Mask>,
    mut explained: Vec<Explained>,
    user: Option<&ItemKey>,
    facts: &Facts,
) -> (Mask, Vec<Explained>, Option<String>) {
    let mut first = None;
    for (nth, leaf) in rule.leaves.iter().enumerate() {
        let (Leaf::Strikes(strikes), Mask::PENDING, Some(user)) = (leaf, leaves[nth], user) else { continue };
        match facts.points(&strikes.need(user)) {
            Ok(points) => {
                leaves[nth] = strikes.settle(points);
                explained[nth] = strikes.explain(leaves[nth], Some(points), None);
            }
            Err(reason) => {
                leaves[nth] = Mask::ERRORED;
                explained[nth] = strikes.explain(Mask::ERRORED, None, Some(reason.to_owned()));
                first.get_or_insert_with(|| format!("strikes: {reason}"));
            }
        }
    }
    // With facts instead of possibilities the same walk stops at the same leaf or earlier, never at a skipped one.
    let Ok(decided) = evaluate::decide(&rule.when, &mut |nth| Ok::<_, Infallible>(leaves[nth]));
    (decided, explained, first)
}

fn matched(head: &RuleHead, tree: Explained) -> Match {
    Match {
        rule: head.rule.clone(),
        name: head.name.clone(),
        version: head.version.clone(),
        status: head.status,
        policies: head.policies.clone(),
        actions: head.actions.clone(),
        tree,
    }
}

fn errored(head: &RuleHead, reason: String) -> Errored {
    Errored { rule: head.rule.clone(), version: head.version.clone(), status: head.status, reason }
}

fn cut() -> Explained {
    Explained::Cut(CutExplained { outcome: Verdict::Passed })
}
