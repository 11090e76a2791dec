//! The condition `domain`: a text or an address of the item names a host in one of several domains. Hosts in texts are
//! found by `hosts`.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::{banks::BankKind, ids::BankId};

use super::{
    context::Context,
    input::{EvalInput, Hit},
    kind::{DocumentLeaf, LeafKind, guess},
};
use crate::{
    error::excerpt,
    fields::ViewedText,
    hosts::{self, Host},
    limits::{OutOfSteps, Steps, wide},
    logic::{ConditionResult, Mask},
    reader::{Reader, present},
    vocabulary::EntryName,
};

/// An address or a text names a host in one of several domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainTest {
    pub fields: Vec<String>,
    /// Domains in canonical form; each with all that is below it.
    pub domains: Vec<String>,
    pub bank: Option<BankId>,
}

#[derive(Debug)]
pub(crate) struct DomainLeaf {
    pub(crate) slots: Vec<usize>,
    domains: HashMap<String, (usize, Option<EntryName>)>,
}

impl LeafKind for DomainLeaf {
    type Spec = DomainTest;
    type Explained = DomainExplained;

    fn paths(spec: &DomainTest, _context: &Context<'_>) -> Vec<String> {
        spec.fields.clone()
    }

    fn compile(test: DomainTest, context: &mut Context<'_>) -> Option<Self> {
        let slots = context.texts(&test.fields, "text");
        let mut domains = HashMap::new();
        let mut add = |domain: String, entry: Option<EntryName>| {
            let next = domains.len();
            domains.entry(domain).or_insert((next, entry));
        };
        for domain in test.domains {
            add(domain, None);
        }
        if let Some(bank) = &test.bank {
            let bank = context.bank(bank, &[BankKind::Domain])?;
            for entry in &*bank.entries {
                match BankKind::Domain.canonical(&entry.value) {
                    Ok(domain) => add(domain, Some(bank.name(entry))),
                    Err(why) => context.unusable(&bank.key, entry, why),
                }
            }
        }
        context.count_words(domains.len())?;
        Some(Self { slots: slots?, domains })
    }

    fn witness(&self) -> Option<f32> {
        Some((0.0005 * guess(self.domains.len())).min(0.5))
    }

    fn cost(&self) -> f32 {
        20.0
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        let mut found = false;
        self.visit_hosts(input, steps, &mut |_, _, host| {
            found = self.of(&host.name).is_some();
            !found
        })?;
        Ok(Mask::decided(found))
    }

    fn explain(
        &self,
        known: Mask,
        _found: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> DomainExplained {
        let mut hits: Vec<(usize, Hit)> = Vec::new();
        let length = input.limits.excerpt_bytes;
        if !known.is_empty() {
            let looked = self.visit_hosts(input, steps, &mut |slot, seen, host| {
                let Some((domain, (nth, entry))) = self.of(&host.name) else { return true };
                if hits.iter().all(|(known, _)| known != nth) {
                    hits.push((
                        *nth,
                        Hit {
                            field: input.fields.path(slot).to_owned(),
                            element: seen.element.name(length),
                            sought: excerpt(domain, length).to_owned(),
                            start: host.start,
                            end: host.end,
                            found: excerpt(&seen.original[host.start..host.end], length).to_owned(),
                            entry: entry.clone(),
                        },
                    ));
                }
                hits.len() < input.limits.hits
            });
            // Steps that do not reach: what was found until then is shown.
            drop(looked);
        }
        DomainExplained {
            outcome: known.result(),
            fields: self.slots.iter().map(|slot| input.fields.path(*slot).to_owned()).collect(),
            hits: hits.into_iter().map(|(_, hit)| hit).collect(),
        }
    }
}

impl DocumentLeaf for DomainLeaf {
    const KEY: &'static str = "domain";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<DomainTest> {
        reader.domain(value)
    }
}

impl Reader<'_> {
    fn domain(&mut self, value: &Json) -> Option<DomainTest> {
        let object = self.object(value, &["in", "any_of", "bank"])?;
        let fields = self.required(object, "in", Self::paths);
        let domains = self.optional(object, "any_of", |r, v| {
            let domains = r.filled(v, |r, v| r.canonical(v, BankKind::Domain))?;
            r.counted(domains.len())?;
            Some(domains)
        });
        let bank = self.optional(object, "bank", |r, v| r.text(v).map(BankId::new));
        let written = ["any_of", "bank"].map(|key| present(object, key));
        if written == [false; 2] {
            return self.error("shape", "expected one or more of any_of and bank");
        }
        (written == [domains.is_some(), bank.is_some()]).then_some(())?;
        Some(DomainTest { fields: fields?, domains: domains.unwrap_or_default(), bank })
    }
}

impl DomainLeaf {
    /// The domains of which one must be named.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    /// The domain that a host is in, the longest first.
    fn of<'l>(&'l self, host: &str) -> Option<(&'l str, &'l (usize, Option<EntryName>))> {
        hosts::upwards(host)
            .find_map(|name| self.domains.get_key_value(name).map(|(name, domain)| (name.as_str(), domain)))
    }

    fn visit_hosts(
        &self,
        input: &EvalInput<'_>,
        steps: &mut Steps,
        found: &mut impl FnMut(usize, &ViewedText<'_, '_>, &Host<'_>) -> bool,
    ) -> Result<(), OutOfSteps> {
        for slot in &self.slots {
            for (seen, hosts) in input.fields.hosts(*slot, steps)? {
                steps.take(1 + wide(seen.text.len()) / 16)?;
                for host in hosts {
                    // Each domain above it is looked up.
                    steps.take(1 + wide(host.name.matches('.').count()))?;
                    if !found(*slot, &seen, host) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The evaluation of a condition on domains, as explanations show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainExplained {
    pub outcome: ConditionResult,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    /// The first host of each domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<Hit>,
}
