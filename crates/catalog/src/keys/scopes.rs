//! Scopes: the permissions of a key. The servers decide which request needs which scope.

use std::{fmt, str::FromStr};

/// One permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    ItemsWrite,
    ItemsRead,
    ReportsWrite,
    AppealsWrite,
    PoliciesRead,
    ActionsWrite,
    /// The admin API except child-safety jobs. Includes `review`.
    Admin,
    /// Child-safety jobs, in addition to `review` or `admin`. No other scope includes it.
    ChildSafety,
    /// Review jobs, and the parts of the admin API that moderators read.
    Review,
    /// Exports of the history. No other scope includes it, not even `admin`: an export holds the personal data of all users.
    ExportsRead,
}

impl Scope {
    pub const ALL: [Self; 10] = [
        Self::ItemsWrite,
        Self::ItemsRead,
        Self::ReportsWrite,
        Self::AppealsWrite,
        Self::PoliciesRead,
        Self::ActionsWrite,
        Self::Admin,
        Self::ChildSafety,
        Self::Review,
        Self::ExportsRead,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ItemsWrite => "items:write",
            Self::ItemsRead => "items:read",
            Self::ReportsWrite => "reports:write",
            Self::AppealsWrite => "appeals:write",
            Self::PoliciesRead => "policies:read",
            Self::ActionsWrite => "actions:write",
            Self::Admin => "admin",
            Self::ChildSafety => "child_safety",
            Self::Review => "review",
            Self::ExportsRead => "exports:read",
        }
    }
}

/// Set of permissions. Its text form is their names, separated by spaces.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u16);

/// Name without a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no scope `{0}`; there are items:write, items:read, reports:write, appeals:write, policies:read, \
     actions:write, admin, child_safety, review, exports:read"
)]
pub struct UnknownScope(String);

impl Scopes {
    /// Returns the scopes that a platform needs, without administration, review, child safety and exports.
    pub fn platform() -> Self {
        let is_platform_scope = |scope: &Scope| {
            !matches!(scope, Scope::Admin | Scope::ChildSafety | Scope::Review | Scope::ExportsRead)
        };
        Scope::ALL.into_iter().filter(is_platform_scope).collect()
    }

    pub fn contains(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    /// True if a key with these scopes has the rights of `scope`: `admin` includes `review`.
    pub fn grants(self, scope: Scope) -> bool {
        self.contains(scope) || (scope == Scope::Review && self.contains(Scope::Admin))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }

    /// Parses the scopes of a stored key. A scope of a newer release is ignored.
    pub(super) fn from_stored(text: &str) -> Self {
        let parse_scope = |name: &str| Scope::ALL.into_iter().find(|scope| scope.name() == name);
        text.split_ascii_whitespace().filter_map(parse_scope).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let scope = Self::ALL.into_iter().find(|scope| scope.name() == name);
        scope.ok_or_else(|| UnknownScope(name.chars().take(64).collect()))
    }
}

impl FromStr for Scopes {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split([' ', ',']).filter(|name| !name.is_empty()).map(str::parse).collect()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " " })?;
            f.write_str(scope.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn scopes_survive_a_round_trip_through_text() {
        let all: Scopes = Scope::ALL.into_iter().collect();
        for scopes in [all, Scopes::platform(), Scopes::default()] {
            assert_eq!(scopes.to_string().parse::<Scopes>().unwrap(), scopes);
            assert_eq!(Scopes::from_stored(&scopes.to_string()), scopes);
        }
        assert_eq!("items:read,admin".parse::<Scopes>().unwrap().to_string(), "items:read admin");
        assert!("items".parse::<Scopes>().is_err());
        assert!(Scopes::from_stored("everything:write").is_empty());
        assert!(!Scopes::platform().contains(Scope::Admin) && all.contains(Scope::Admin));
        assert!(!Scopes::platform().contains(Scope::ChildSafety) && all.contains(Scope::ChildSafety));
        assert!(!"admin".parse::<Scopes>().unwrap().contains(Scope::ChildSafety));
        assert!(!Scopes::platform().contains(Scope::ExportsRead));
    }

    #[test]
    fn only_admin_includes_review() {
        for scope in Scope::ALL {
            let scopes: Scopes = [scope].into_iter().collect();
            assert_eq!(
                scopes.grants(Scope::Review),
                matches!(scope, Scope::Admin | Scope::Review),
                "{scopes}"
            );
            assert_eq!(scopes.grants(Scope::Admin), scope == Scope::Admin, "{scopes}");
            assert_eq!(scopes.grants(Scope::ExportsRead), scope == Scope::ExportsRead, "{scopes}");
        }
    }
}
