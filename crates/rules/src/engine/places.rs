//! Nominates the predicates that are indexed by the geographic places and the hosts of an item.

use std::collections::{BTreeMap, HashMap};

use super::Run;
use crate::{
    geo::Grid,
    hosts,
    leaves::{
        domain::DomainLeaf,
        geo::{GeoLeaf, GeoPlaces},
    },
    limits::OutOfSteps,
    search::hashing::BuildFastHasher,
};

/// Areas and domains that index predicates, with their witnesses.
#[derive(Debug, Default)]
pub(crate) struct PlaceIndex {
    areas: BTreeMap<GeoPlaces, Grid>,
    domains: BTreeMap<usize, HashMap<Box<str>, Vec<u32>, BuildFastHasher>>,
}

impl PlaceIndex {
    pub(crate) fn add_areas(&mut self, witness: u32, geo: &GeoLeaf) {
        let grid = self.areas.entry(geo.places.clone()).or_default();
        geo.boxes().for_each(|area| grid.add(area, witness));
    }

    pub(crate) fn add_domains(&mut self, witness: u32, domain: &DomainLeaf) {
        for slot in &domain.slots {
            let names = self.domains.entry(*slot).or_default();
            for name in domain.names() {
                names.entry(name.into()).or_default().push(witness);
            }
        }
    }
}

impl Run<'_, '_> {
    pub(super) fn nominate_by_places(&mut self) -> Result<(), OutOfSteps> {
        let (index, input) = (self.index, self.input);
        for (places, grid) in &index.places.areas {
            for place in places.find_places(input) {
                self.steps.take_shared(1)?;
                for witness in grid.at(place.point) {
                    self.nominate_witness(index.witnesses[witness as usize], true)?;
                }
            }
        }
        for (slot, names) in &index.places.domains {
            for (viewed, hosts) in input.fields.hosts(*slot, &mut self.steps)? {
                self.steps.take_shared(1 + u64::try_from(viewed.text.len() / 16).unwrap_or(u64::MAX))?;
                for host in hosts {
                    // An entry for a domain also covers its subdomains, so each parent of the host is looked up.
                    for witness in
                        hosts::self_and_parents(&host.name).filter_map(|name| names.get(name)).flatten()
                    {
                        self.nominate_witness(index.witnesses[*witness as usize], true)?;
                    }
                }
            }
        }
        Ok(())
    }
}
