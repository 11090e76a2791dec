//! Syntax tree of a formula.

use crate::{item::Number, leaves::op::Op};

/// Part of a formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Ast {
    Number(Number),
    Text(String),
    Boolean(bool),
    /// An instant as ISO 8601.
    Instant(String),
    /// Field at a path.
    Path(String),
    /// Element of the list in `exists` or `all`.
    Each,
    Has(String),
    Size(Box<Ast>),
    Negative(Box<Ast>),
    Not(Box<Ast>),
    And(Box<Ast>, Box<Ast>),
    Or(Box<Ast>, Box<Ast>),
    Arithmetic(Arithmetic, Box<Ast>, Box<Ast>),
    /// `eq`, `ne` or an order.
    Compare(Op, Box<Ast>, Box<Ast>),
    /// Equal to one of several constants.
    Among(Box<Ast>, Vec<Ast>),
    /// Equal to one of the values of a field.
    In(Box<Ast>, String),
    /// `starts_with`, `ends_with` or `contains`.
    Part(Op, Box<Ast>, Box<Ast>),
    Matches(Box<Ast>, String),
    /// `exists`, or `all` if `every`.
    Quantified {
        every: bool,
        path: String,
        name: String,
        body: Box<Ast>,
    },
}

impl Ast {
    /// Paths that the formula reads, each once, in order of occurrence.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths = Vec::new();
        self.collect(&mut paths);
        paths
    }

    fn collect<'a>(&'a self, paths: &mut Vec<&'a str>) {
        match self {
            Self::Number(_) | Self::Text(_) | Self::Boolean(_) | Self::Instant(_) | Self::Each => {}
            Self::Path(path) | Self::Has(path) => add(paths, path),
            Self::Size(of)
            | Self::Negative(of)
            | Self::Not(of)
            | Self::Matches(of, _)
            | Self::Among(of, _) => {
                of.collect(paths);
            }
            Self::And(a, b)
            | Self::Or(a, b)
            | Self::Arithmetic(_, a, b)
            | Self::Compare(_, a, b)
            | Self::Part(_, a, b) => {
                a.collect(paths);
                b.collect(paths);
            }
            Self::In(of, path) => {
                of.collect(paths);
                add(paths, path);
            }
            Self::Quantified { path, body, .. } => {
                add(paths, path);
                body.collect(paths);
            }
        }
    }
}

fn add<'a>(paths: &mut Vec<&'a str>, path: &'a str) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    Plus,
    Minus,
    Times,
    Over,
    Remainder,
}
