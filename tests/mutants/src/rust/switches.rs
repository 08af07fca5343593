//! Mutants of a file, each behind a switch that is read when the program runs: what the code does stands beside what it does then.

use std::collections::HashMap;
use std::ops::Range;

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::parse::Parse;
use syn::punctuated::Pair;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Arm, BinOp, Block, Expr, ExprBinary, ExprConst, ExprIf, ExprStruct, FieldValue, ImplItemConst,
    ImplItemFn, ItemConst, ItemFn, ItemStatic, Lit, Signature, Token, TraitItemConst, TraitItemFn,
    parse_quote,
};

use super::Mutant;

/// Returns the text of a file with these mutants in it, and those of them that no switch can turn on: they are in a constant or a
/// `const fn`, replace the body of a function that returns `impl` of a trait, or part what a `let` in a condition is joined by.
pub(super) fn switched<'a>(
    text: &str,
    mutants: &[&'a Mutant],
) -> syn::Result<(String, Vec<&'a Mutant>)> {
    let mut file = syn::parse_file(text)?;
    let mut switches = Switches::default();
    for mutant in mutants {
        let place = (mutant.genre.clone(), mutant.line, mutant.column);
        switches.waiting.entry(place).or_default().push(mutant);
    }
    switches.visit_file_mut(&mut file);
    // What has a switch has parentheses around it, too, and warnings may be errors.
    file.attrs.push(parse_quote!(#![allow(warnings)]));
    let text = file.into_token_stream().to_string();
    Ok((text, switches.waiting.into_values().flatten().collect()))
}

/// Returns the number of the mutant that is the closest around this part of a switched text, and else of the last one before: what a mutant
/// returns may say too little of a type that the compiler then misses in the rest of the function.
pub(super) fn mutant_near(text: &str, part: Range<usize>) -> syn::Result<Option<u64>> {
    let mut near = Near {
        part,
        around: None,
        before: None,
    };
    near.visit_file(&syn::parse_file(text)?);
    Ok(near.around.or(near.before))
}

#[derive(Default)]
struct Switches<'a> {
    /// By what they change, its line and its column.
    waiting: HashMap<(String, usize, usize), Vec<&'a Mutant>>,
}

impl<'a> Switches<'a> {
    /// Returns the mutants that change what stands here.
    fn take(&mut self, genre: &str, at: Span) -> Vec<&'a Mutant> {
        let start = at.start();
        // Columns are counted from 0 here, and from 1 by cargo-mutants.
        let place = (genre.to_owned(), start.line, start.column + 1);
        self.waiting.remove(&place).unwrap_or_default()
    }

    /// Each mutant of a body is a return before it.
    fn switch_body(&mut self, signature: &Signature, block: &mut Block) {
        if signature.constness.is_some() {
            return;
        }
        let returns_some_type = signature.output.to_token_stream().to_string();
        let of_body = match block.stmts.first() {
            Some(first) if !returns_some_type.contains("impl ") => {
                self.take("FnValue", first.span())
            }
            _ => Vec::new(),
        };
        self.visit_block_mut(block);
        for mutant in of_body {
            let (number, value) = (mutant.number, parsed::<Expr>(&mutant.replacement));
            let returns = parse_quote!(if crate::mutant::is_on(#number) { return #value; });
            block.stmts.insert(0, returns);
        }
    }

    /// Returns what this expression becomes by each of its mutants.
    fn changes(&mut self, expr: &Expr) -> Vec<(u64, Expr)> {
        match expr {
            Expr::Binary(whole) if !joins_a_let(expr) => {
                let mutants = self.take("BinaryOperator", whole.op.span());
                let changed = mutants.into_iter().map(|mutant| {
                    let op = parsed::<BinOp>(&mutant.replacement);
                    let changed = ExprBinary {
                        op,
                        ..whole.clone()
                    };
                    (mutant.number, Expr::Binary(changed))
                });
                changed.collect()
            }
            Expr::Unary(whole) => {
                let mutants = self.take("UnaryOperator", whole.op.span());
                let changed = mutants
                    .into_iter()
                    .map(|mutant| (mutant.number, (*whole.expr).clone()));
                changed.collect()
            }
            Expr::Struct(whole) if whole.rest.is_some() => {
                let mut changed = Vec::new();
                for field in &whole.fields {
                    for mutant in self.take("StructField", field.span()) {
                        let is_other =
                            |pair: &Pair<&FieldValue, _>| pair.value().member != field.member;
                        let fields = whole
                            .fields
                            .pairs()
                            .filter(is_other)
                            .map(Pair::cloned)
                            .collect();
                        let without = ExprStruct {
                            fields,
                            ..whole.clone()
                        };
                        changed.push((mutant.number, Expr::Struct(without)));
                    }
                }
                changed
            }
            _ => Vec::new(),
        }
    }
}

impl VisitMut for Switches<'_> {
    fn visit_item_fn_mut(&mut self, function: &mut ItemFn) {
        self.switch_body(&function.sig, &mut function.block);
    }

    fn visit_impl_item_fn_mut(&mut self, function: &mut ImplItemFn) {
        self.switch_body(&function.sig, &mut function.block);
    }

    fn visit_trait_item_fn_mut(&mut self, function: &mut TraitItemFn) {
        if let Some(block) = &mut function.default {
            self.switch_body(&function.sig, block);
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let changes = self.changes(expr);
        visit_mut::visit_expr_mut(self, expr);
        for (number, changed) in changes {
            *expr =
                parse_quote!((if crate::mutant::is_on(#number) { (#changed) } else { (#expr) }));
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut Arm) {
        let without = self.take("MatchArm", arm.span());
        let of_guard = match &arm.guard {
            Some((_, guard)) => self.take("MatchArmGuard", guard.span()),
            None => Vec::new(),
        };
        visit_mut::visit_arm_mut(self, arm);
        for Mutant { number, .. } in without {
            let guard = parse_quote!(!crate::mutant::is_on(#number));
            arm.guard = Some((<Token![if]>::default(), guard));
        }
        if let Some((_, guard)) = &mut arm.guard {
            for Mutant {
                number,
                replacement,
                ..
            } in of_guard
            {
                *guard = match replacement.as_str() {
                    "true" => parse_quote!((crate::mutant::is_on(#number) || (#guard))),
                    _ => parse_quote!((!crate::mutant::is_on(#number) && (#guard))),
                };
            }
        }
    }

    // What the compiler computes has no switch.
    fn visit_expr_const_mut(&mut self, _: &mut ExprConst) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut ImplItemConst) {}
    fn visit_item_const_mut(&mut self, _: &mut ItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut ItemStatic) {}
    fn visit_trait_item_const_mut(&mut self, _: &mut TraitItemConst) {}
}

fn parsed<T: Parse>(replacement: &str) -> T {
    syn::parse_str(replacement).expect("cargo-mutants writes Rust")
}

/// Whether this is a condition such as `let Some(a) = b && c`, which no other operator can join.
fn joins_a_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(whole) if matches!(whole.op, BinOp::And(_)) => {
            joins_a_let(&whole.left) || joins_a_let(&whole.right)
        }
        _ => false,
    }
}

struct Near {
    part: Range<usize>,
    around: Option<u64>,
    before: Option<u64>,
}

impl Visit<'_> for Near {
    fn visit_expr_if(&mut self, whole: &ExprIf) {
        let Range { start, end } = whole.span().byte_range();
        if let Some(number) = number_of_switch(&whole.cond)
            && start <= self.part.start
            && self.part.end <= end
        {
            self.around = Some(number);
        }
        visit::visit_expr_if(self, whole);
    }

    fn visit_expr(&mut self, expr: &Expr) {
        if let Some(number) = number_of_switch(expr)
            && expr.span().byte_range().end <= self.part.start
        {
            self.before = Some(number);
        }
        visit::visit_expr(self, expr);
    }
}

fn number_of_switch(condition: &Expr) -> Option<u64> {
    let Expr::Call(call) = condition else {
        return None;
    };
    let is_switch =
        matches!(&*call.func, Expr::Path(path) if path.path.segments.last()?.ident == "is_on");
    match call.args.first()? {
        Expr::Lit(number) if is_switch => match &number.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes the first of this part of a line.
    fn mutant(genre: &str, line: &str, part: &str, replacement: &str) -> Mutant {
        Mutant {
            file: "src/a.rs".into(),
            name: String::new(),
            change: String::new(),
            genre: genre.to_owned(),
            line: 1,
            column: line.find(part).unwrap() + 1,
            replacement: replacement.to_owned(),
            number: 7,
        }
    }

    /// Returns the switched text, or `None` if the mutant has no switch.
    fn text_with(mutant: &Mutant, text: &str) -> Option<String> {
        let (text, without) = switched(text, &[mutant]).unwrap();
        without.is_empty().then_some(text)
    }

    #[test]
    fn each_kind_of_mutant_has_a_switch() {
        let on = "crate::mutant::is_on(7u64)";
        for (genre, part, replacement, text, expected) in [
            (
                "FnValue",
                "a()",
                "Default::default()",
                "fn f() -> u32 { a() }",
                format!("fn f() -> u32 {{ if {on} {{ return Default::default(); }} a() }}"),
            ),
            (
                "BinaryOperator",
                "<",
                "<=",
                "fn f() { g(a < b) }",
                format!("fn f() {{ g((if {on} {{ (a <= b) }} else {{ (a < b) }})) }}"),
            ),
            (
                "BinaryOperator",
                "+=",
                "-=",
                "fn f() { a += 1; }",
                format!("fn f() {{ (if {on} {{ (a -= 1) }} else {{ (a += 1) }}); }}"),
            ),
            (
                "UnaryOperator",
                "!",
                "",
                "fn f() { g(!a) }",
                format!("fn f() {{ g((if {on} {{ (a) }} else {{ (!a) }})) }}"),
            ),
            (
                "MatchArm",
                "A",
                "",
                "fn f() { match a { A => b(), _ => c() } }",
                format!("fn f() {{ match a {{ A if !{on} => b(), _ => c() }} }}"),
            ),
            (
                "MatchArmGuard",
                "d",
                "true",
                "fn f() { match a { A if d => b(), _ => c() } }",
                format!("fn f() {{ match a {{ A if ({on} || (d)) => b(), _ => c() }} }}"),
            ),
            (
                "StructField",
                "b",
                "",
                "fn f() { g(A { b, c, ..d }) }",
                format!(
                    "fn f() {{ g((if {on} {{ (A {{ c, ..d }}) }} else {{ (A {{ b, c, ..d }}) }})) }}"
                ),
            ),
        ] {
            let expected = format!("#![allow(warnings)] {expected}");
            let expected = syn::parse_file(&expected).unwrap().into_token_stream();
            let text = text_with(&mutant(genre, text, part, replacement), text);
            assert_eq!(text, Some(expected.to_string()));
        }
    }

    #[test]
    fn what_the_compiler_computes_has_none() {
        for (genre, part, replacement, text) in [
            ("BinaryOperator", "<", "<=", "const A: bool = B < C;"),
            (
                "BinaryOperator",
                "<",
                "<=",
                "const fn f() -> bool { a < b }",
            ),
            (
                "BinaryOperator",
                "&&",
                "||",
                "fn f() { if let Some(a) = b && a {} }",
            ),
            (
                "FnValue",
                "a()",
                "empty()",
                "fn f() -> impl Iterator { a() }",
            ),
        ] {
            let mutant = mutant(genre, text, part, replacement);
            assert_eq!(text_with(&mutant, text), None, "{text}");
        }
    }

    #[test]
    fn an_error_belongs_to_the_mutant_around_it_or_before_it() {
        let text = "fn f() -> u32 { a() } fn g() { h(b < c, d) }";
        let first = mutant("FnValue", text, "a()", "Default::default()");
        let mut second = mutant("BinaryOperator", text, "<", ">");
        second.number = 8;
        let (text, _) = switched(text, &[&first, &second]).unwrap();
        let at = |part: &str| {
            let start = text.find(part).unwrap();
            mutant_near(&text, start..start + part.len()).unwrap()
        };
        assert_eq!(at("Default"), Some(7));
        assert_eq!(at("a ()"), Some(7));
        assert_eq!(at("b > c"), Some(8));
        assert_eq!(at("d)"), Some(8));
    }
}
