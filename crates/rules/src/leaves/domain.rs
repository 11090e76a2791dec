//! Whether a text or an address of the item names a host in one of several domains.
//!
//! It does not find hosts in texts; see `hosts`.

use std::collections::HashMap;

use tidegate_schemas::banks::BankKind;

use crate::{
    bank::EntryName,
    compile::Context,
    evaluate::Mask,
    explain::{DomainExplained, Explained, Hit, excerpt},
    form::DomainTest,
    hosts::{self, Host},
    leaves::Scene,
    limits::{Spent, Steps, wide},
    views::Seen,
};

#[derive(Debug)]
pub(crate) struct DomainLeaf {
    pub(crate) slots: Vec<usize>,
    domains: HashMap<String, (usize, Option<EntryName>)>,
}

impl DomainLeaf {
    pub(super) fn compile(test: DomainTest, context: &mut Context<'_>) -> Option<Self> {
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

    pub(crate) fn size(&self) -> usize {
        self.domains.len()
    }

    /// The domains of which one must be named.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    /// The domain that a host is in, the longest first.
    fn of<'l>(&'l self, host: &str) -> Option<(&'l str, &'l (usize, Option<EntryName>))> {
        hosts::upwards(host)
            .find_map(|name| self.domains.get_key_value(name).map(|(name, domain)| (name.as_str(), domain)))
    }

    pub(super) fn judge(&self, scene: &Scene<'_>, steps: &mut Steps) -> Result<Mask, Spent> {
        let mut found = false;
        self.look(scene, steps, &mut |_, _, host| {
            found = self.of(&host.name).is_some();
            !found
        })?;
        Ok(Mask::decided(found))
    }

    fn look(
        &self,
        scene: &Scene<'_>,
        steps: &mut Steps,
        found: &mut impl FnMut(usize, &Seen<'_, '_>, &Host<'_>) -> bool,
    ) -> Result<(), Spent> {
        for slot in &self.slots {
            for (seen, hosts) in scene.views.hosts(*slot, steps)? {
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

    pub(super) fn explain(&self, known: Mask, scene: &Scene<'_>, steps: &mut Steps) -> Explained {
        let mut hits: Vec<(usize, Hit)> = Vec::new();
        let length = scene.limits.excerpt_bytes;
        if !known.is_empty() {
            let looked = self.look(scene, steps, &mut |slot, seen, host| {
                let Some((domain, (nth, entry))) = self.of(&host.name) else { return true };
                if hits.iter().all(|(known, _)| known != nth) {
                    hits.push((
                        *nth,
                        Hit {
                            field: scene.views.path(slot).to_owned(),
                            element: seen.element.name(length),
                            sought: excerpt(domain, length).to_owned(),
                            start: host.start,
                            end: host.end,
                            found: excerpt(&seen.original[host.start..host.end], length).to_owned(),
                            entry: entry.clone(),
                        },
                    ));
                }
                hits.len() < scene.limits.hits
            });
            // Steps that do not reach: what was found until then is shown.
            drop(looked);
        }
        Explained::Domain(DomainExplained {
            outcome: known.verdict(),
            fields: self.slots.iter().map(|slot| scene.views.path(*slot).to_owned()).collect(),
            hits: hits.into_iter().map(|(_, hit)| hit).collect(),
        })
    }
}
