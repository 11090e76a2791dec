//! Roles of fields, and the fields that may have them.

use serde::{Deserialize, Serialize};

use super::kinds::{Kind, Scalar};

/// Meaning of a field beyond its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    Creator,
    Thread,
    Parent,
    CreatedAt,
    DisplayName,
    IsDeleted,
    IpAddress,
    Email,
    ProfileIcon,
    BackgroundImage,
}

impl Role {
    /// All roles. The index of a role is its discriminant, which `Shape::by_role` relies on.
    pub const ALL: [Self; 10] = [
        Self::Creator,
        Self::Thread,
        Self::Parent,
        Self::CreatedAt,
        Self::DisplayName,
        Self::IsDeleted,
        Self::IpAddress,
        Self::Email,
        Self::ProfileIcon,
        Self::BackgroundImage,
    ];

    /// Returns the name used in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Creator => "creator",
            Self::Thread => "thread",
            Self::Parent => "parent",
            Self::CreatedAt => "createdAt",
            Self::DisplayName => "displayName",
            Self::IsDeleted => "isDeleted",
            Self::IpAddress => "ipAddress",
            Self::Email => "email",
            Self::ProfileIcon => "profileIcon",
            Self::BackgroundImage => "backgroundImage",
        }
    }

    /// Returns the required type of a field with this role.
    pub fn scalar(self) -> Scalar {
        match self {
            Self::Creator | Self::Thread | Self::Parent => Scalar::RelatedItem,
            Self::CreatedAt => Scalar::Datetime,
            Self::DisplayName => Scalar::String,
            Self::IsDeleted => Scalar::Boolean,
            Self::IpAddress => Scalar::IpAddress,
            Self::Email => Scalar::EmailAddress,
            Self::ProfileIcon | Self::BackgroundImage => Scalar::Image,
        }
    }

    /// True if item types of this kind may have the role.
    pub fn suits(self, kind: Kind) -> bool {
        match self {
            Self::DisplayName | Self::CreatedAt | Self::IsDeleted | Self::IpAddress => true,
            Self::Creator => kind != Kind::User,
            Self::Thread | Self::Parent => kind == Kind::Content,
            Self::Email | Self::ProfileIcon | Self::BackgroundImage => kind == Kind::User,
        }
    }

    /// Returns the roles that an item with a value in this role must also have: without a thread and a time, a reply
    /// has no place in a conversation.
    pub(super) fn required_roles(self) -> &'static [Self] {
        match self {
            // A parent without a thread cannot be found among the items of its conversation.
            Self::Parent => &[Self::Thread, Self::CreatedAt],
            Self::Thread => &[Self::CreatedAt],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminant_of_a_role_is_its_index() {
        for (place, role) in Role::ALL.into_iter().enumerate() {
            assert_eq!(role as usize, place);
        }
    }

    #[test]
    fn each_kind_has_its_roles() {
        let roles = |kind| Role::ALL.into_iter().filter(|role| role.suits(kind)).count();
        assert_eq!(roles(Kind::Content), 7);
        assert_eq!(roles(Kind::User), 7);
        assert_eq!(roles(Kind::Thread), 5);
    }
}
