//! The compiler's message for text in place of an algorithm.
//!
//! A message of our own needs a trait of our own: text would be an algorithm if [`Unparsed`] were
//! [`Parsed`], which it never is. All of it is hidden from the documentation, since a program can use none of it.

use super::Algorithm;

/// Text that was not parsed.
// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Unparsed<'a>(#[expect(dead_code, reason = "nothing reads it")] &'a str);

/// Never implemented: text that was parsed is an [`Algorithm`].
// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "text is not an algorithm until it is parsed",
    label = "this is text",
    note = "parse it: `\"token-bucket 5/second burst 10\".parse::<Algorithm>()?`",
    note = "or name the algorithm in code: `TokenBucket::per_second(5).burst(10)`"
)]
pub trait Parsed {
    /// Returns the algorithm.
    fn algorithm(self) -> Algorithm;
}

// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
impl<'a> From<&'a str> for Algorithm
where
    Unparsed<'a>: Parsed,
{
    fn from(text: &'a str) -> Self {
        Unparsed(text).algorithm()
    }
}

// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
impl<'a> From<&'a String> for Algorithm
where
    Unparsed<'a>: Parsed,
{
    fn from(text: &'a String) -> Self {
        Unparsed(text).algorithm()
    }
}

// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
impl From<String> for Algorithm
where
    for<'a> Unparsed<'a>: Parsed,
{
    fn from(text: String) -> Self {
        Unparsed(&text).algorithm()
    }
}
