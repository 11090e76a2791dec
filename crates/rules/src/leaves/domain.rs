//! The condition `domain`: a text or an address of the item names a host in one of several domains. `hosts` finds the hosts.

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
    limits::{OutOfSteps, Steps, to_u64},
    logic::{ConditionResult, Mask},
    reader::{Reader, is_present},
    vocabulary::EntryName,
};

/// Test for a host in one of several domains in a text or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainTest {
    pub fields: Vec<String>,
    /// Domains in canonical form. Each includes its subdomains.
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
        let slots = context.resolve_text_slots(&test.fields, "text");
        let mut domains = HashMap::new();
        let mut add = |domain: String, entry: Option<EntryName>| {
            let next = domains.len();
            // The rule's own domains are added first, so the same domain in the bank does not replace them.
            domains.entry(domain).or_insert((next, entry));
        };
        for domain in test.domains {
            add(domain, None);
        }
        if let Some(bank) = &test.bank {
            let bank = context.resolve_bank(bank, &[BankKind::Domain])?;
            for entry in &*bank.entries {
                match BankKind::Domain.canonical(&entry.value) {
                    Ok(domain) => add(domain, Some(bank.name(entry))),
                    Err(reason) => context.warn_unusable_entry(&bank.key, entry, reason),
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
        let mut is_found = false;
        self.visit_hosts(input, steps, &mut |_, _, host| {
            is_found = self.find_domain(&host.name).is_some();
            !is_found
        })?;
        Ok(Mask::from_bool(is_found))
    }

    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> DomainExplained {
        let mut hits: Vec<(usize, Hit)> = Vec::new();
        let length = input.limits.excerpt_bytes;
        if !mask.is_empty() {
            let result = self.visit_hosts(input, steps, &mut |slot, viewed, host| {
                let Some((domain, (nth, entry))) = self.find_domain(&host.name) else { return true };
                // Each domain is shown with its first host only.
                if hits.iter().all(|(other_nth, _)| other_nth != nth) {
                    hits.push((
                        *nth,
                        Hit {
                            field: input.fields.path(slot).to_owned(),
                            element: viewed.element.name(length),
                            sought: excerpt(domain, length).to_owned(),
                            start: host.start,
                            end: host.end,
                            found: excerpt(&viewed.original[host.start..host.end], length).to_owned(),
                            entry: entry.clone(),
                        },
                    ));
                }
                hits.len() < input.limits.hits
            });
            // If the steps are used up early, the hits so far are shown.
            drop(result);
        }
        DomainExplained {
            outcome: mask.result(),
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
            let domains = r.non_empty_list(v, |r, v| r.canonical(v, BankKind::Domain))?;
            r.count_words(domains.len())?;
            Some(domains)
        });
        let bank = self.optional(object, "bank", |r, v| r.text(v).map(BankId::new));
        let present_keys = ["any_of", "bank"].map(|key| is_present(object, key));
        if present_keys == [false; 2] {
            return self.error("shape", "expected one or more of any_of and bank");
        }
        (present_keys == [domains.is_some(), bank.is_some()]).then_some(())?;
        Some(DomainTest { fields: fields?, domains: domains.unwrap_or_default(), bank })
    }
}

impl DomainLeaf {
    /// Domains of which one must be named.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    /// Domain of a host; the longest one if several contain it.
    fn find_domain<'l>(&'l self, host: &str) -> Option<(&'l str, &'l (usize, Option<EntryName>))> {
        hosts::self_and_parents(host)
            .find_map(|name| self.domains.get_key_value(name).map(|(name, domain)| (name.as_str(), domain)))
    }

    fn visit_hosts(
        &self,
        input: &EvalInput<'_>,
        steps: &mut Steps,
        visit: &mut impl FnMut(usize, &ViewedText<'_, '_>, &Host<'_>) -> bool,
    ) -> Result<(), OutOfSteps> {
        for slot in &self.slots {
            for (viewed, hosts) in input.fields.hosts(*slot, steps)? {
                steps.take(1 + to_u64(viewed.text.len()) / 16)?;
                for host in hosts {
                    // Each parent domain costs a look-up.
                    steps.take(1 + to_u64(host.name.matches('.').count()))?;
                    if !visit(*slot, &viewed, host) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Explanation of a condition on domains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainExplained {
    pub outcome: ConditionResult,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    /// First host of each domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<Hit>,
}
