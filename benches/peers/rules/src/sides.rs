//! Ways to say which of many words are in a text, each as a set of rules.
//!
//! They measure nothing.

use std::cell::RefCell;

use aho_corasick::AhoCorasick;
use cel::{Context, Program, Value as Cel};
use memchr::memmem::Finder;
use rhai::{AST, Engine, Scope};
use serde_json::{Value as Json, json};
use tidegate_rules::{Facts, Fields, Item, Kind, Limits, On, Plan, RuleSource, Shape, Value, Vocabulary};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};
use yara_x::{Compiler, Scanner};
use zen_expression::{Expression, compile_expression, expression::Standard};

pub trait Side {
    fn name(&self) -> &'static str;
    /// The rules that the text matches.
    fn matches(&self, text: &str) -> Vec<u32>;
}

/// Tidegate comes first: the others are compared with it.
pub fn all(words: &[String]) -> Vec<Box<dyn Side>> {
    vec![
        Box::new(Tidegate::new(words)),
        Box::new(Automaton(AhoCorasick::new(words).unwrap())),
        Box::new(Loop(words.iter().map(|word| Finder::new(word).into_owned()).collect())),
        Box::new(CelNested(programs(words, "item.data.text"))),
        Box::new(CelFlat(programs(words, "text"))),
        Box::new(Rhai::new(words)),
        Box::new(Yara::new(words, false)),
        Box::new(Yara::new(words, true)),
        Box::new(Zen(words
            .iter()
            .map(|word| compile_expression(&format!("contains(text, '{word}')")).unwrap())
            .collect())),
    ]
}

struct Tidegate {
    plan: Plan,
    type_id: TypeId,
    submission: SubmissionId,
}

struct Data<'t>(&'t str);

impl Fields for Data<'_> {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        (name == "text").then_some(Value::Text(self.0))
    }
}

impl Tidegate {
    fn new(words: &[String]) -> Self {
        let mut vocabulary = Vocabulary::new();
        let type_id = TypeId::new("post");
        vocabulary.add(type_id.clone(), [("text", Shape::one(Kind::Text))]);
        let rule = |(nth, word): (usize, &String)| json!({"rule": nth.to_string(), "status": "live", "when": {"text": {"in": ["text"], "any_of": [word]}}});
        let documents: Vec<Json> = words.iter().enumerate().map(rule).collect();
        let sources: Vec<_> =
            documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
        let limits = Limits { rules: 1_000_000, ..Limits::default() };
        let plan = Plan::compile(&sources, &vocabulary, &limits).unwrap();
        Self { plan, type_id, submission: SubmissionId::random() }
    }
}

impl Side for Tidegate {
    fn name(&self) -> &'static str {
        "Tidegate, with explanations"
    }

    fn matches(&self, text: &str) -> Vec<u32> {
        let values = Data(text);
        let item = Item {
            type_id: &self.type_id,
            values: &values,
            user: None,
            on: On::Item,
            now: Millis(0),
            submission: self.submission,
        };
        let outcome = self.plan.finish(self.plan.scan(&item), &Facts::new());
        outcome.matched.iter().map(|matched| matched.rule.as_str().parse().unwrap()).collect()
    }
}

struct Automaton(AhoCorasick);

impl Side for Automaton {
    fn name(&self) -> &'static str {
        "aho-corasick, one automaton"
    }

    fn matches(&self, text: &str) -> Vec<u32> {
        self.0.find_overlapping_iter(text).map(|found| found.pattern().as_u32()).collect()
    }
}

struct Loop(Vec<Finder<'static>>);

impl Side for Loop {
    fn name(&self) -> &'static str {
        "memchr, one search a rule"
    }

    fn matches(&self, text: &str) -> Vec<u32> {
        (0..)
            .zip(&self.0)
            .filter(|(_, finder)| finder.find(text.as_bytes()).is_some())
            .map(|(nth, _)| nth)
            .collect()
    }
}

fn programs(words: &[String], text: &str) -> Vec<Program> {
    words.iter().map(|word| Program::compile(&format!("{text}.contains('{word}')")).unwrap()).collect()
}

fn run(programs: &[Program], context: &Context<'_, '_>) -> Vec<u32> {
    let holds = |program: &Program| matches!(program.execute(context), Ok(Cel::Bool(true)));
    (0..).zip(programs).filter(|(_, program)| holds(program)).map(|(nth, _)| nth).collect()
}

struct CelNested(Vec<Program>);

impl Side for CelNested {
    fn name(&self) -> &'static str {
        "cel, `item.data.text`"
    }

    fn matches(&self, text: &str) -> Vec<u32> {
        let mut context = Context::default();
        let data: std::collections::HashMap<String, Cel> = [("text".to_owned(), Cel::from(text))].into();
        let item: std::collections::HashMap<String, Cel> = [("data".to_owned(), Cel::from(data))].into();
        context.add_variable_from_value("item", item);
        run(&self.0, &context)
    }
}

struct CelFlat(Vec<Program>);

impl Side for CelFlat {
    fn name(&self) -> &'static str {
        "cel, a variable `text`"
    }

    fn matches(&self, text: &str) -> Vec<u32> {
        let mut context = Context::default();
        context.add_variable_from_value("text", text);
        run(&self.0, &context)
    }
}

struct Rhai {
    engine: Engine,
    rules: Vec<AST>,
}

impl Rhai {
    fn new(words: &[String]) -> Self {
        let engine = Engine::new();
        let rules =
            words.iter().map(|word| engine.compile_expression(format!("text.contains(\"{word}\")")).unwrap());
        Self { rules: rules.collect(), engine }
    }
}

impl Side for Rhai {
    fn name(&self) -> &'static str {
        "rhai"
    }

    fn matches(&self, text: &str) -> Vec<u32> {
        let mut scope = Scope::new();
        scope.push_constant("text", text.to_owned());
        let mut holds = |rule: &AST| self.engine.eval_ast_with_scope::<bool>(&mut scope, rule).unwrap();
        (0..).zip(&self.rules).filter(|(_, rule)| holds(rule)).map(|(nth, _)| nth).collect()
    }
}

struct Zen(Vec<Expression<Standard>>);

impl Side for Zen {
    fn name(&self) -> &'static str {
        "zen-expression"
    }

    fn matches(&self, text: &str) -> Vec<u32> {
        let context: zen_expression::Variable = json!({"text": text}).into();
        let holds = |rule: &Expression<Standard>| {
            rule.evaluate(context.shallow_clone()).is_ok_and(|value| value.as_bool() == Some(true))
        };
        (0..).zip(&self.0).filter(|(_, rule)| holds(rule)).map(|(nth, _)| nth).collect()
    }
}

struct Yara {
    /// A scanner keeps what it needs between texts, so it changes with each.
    scanner: RefCell<Scanner<'static>>,
    fast: bool,
}

impl Yara {
    fn new(words: &[String], fast: bool) -> Self {
        let mut compiler = Compiler::new();
        for (nth, word) in words.iter().enumerate() {
            let rule = format!("rule r{nth} {{ strings: $word = \"{word}\" condition: $word }}");
            compiler.add_source(rule.as_str()).unwrap();
        }
        // A scanner borrows its rules; they live as long as the bench.
        let mut scanner = Scanner::new(Box::leak(Box::new(compiler.build())));
        scanner.fast_scan(fast);
        Self { scanner: RefCell::new(scanner), fast }
    }
}

impl Side for Yara {
    fn name(&self) -> &'static str {
        if self.fast { "yara-x, `fast_scan`" } else { "yara-x" }
    }

    fn matches(&self, text: &str) -> Vec<u32> {
        let mut scanner = self.scanner.borrow_mut();
        let results = scanner.scan(text.as_bytes()).unwrap();
        results.matching_rules().map(|rule| rule.identifier()[1..].parse().unwrap()).collect()
    }
}
