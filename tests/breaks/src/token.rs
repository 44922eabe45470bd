//! Tokens of SQL. White space, line breaks and comments are none, inside a function's body too.
//!
//! A string's content and a dollar-quoted body are read as SQL: breaks reach into both.

/// The schemas whose names do not count. `tuskline.task` and `task` are the same token.
const SCHEMAS: [&str; 2] = ["tuskline", "tuskline_core"];

/// Operators of more than one character, longest first.
const OPERATORS: [&str; 14] =
    ["->>", "#>>", "==>", ":=", "::", "..", "||", "<=", ">=", "<>", "!=", "=>", "->", "#>"];

/// The token that stands for any run of tokens within one statement of a body.
pub const GAP: &str = "…";

/// A token of a text, by its place.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    /// Where it begins, with its schema.
    pub start: usize,
    /// Where it begins without its schema.
    pub bare: usize,
    pub end: usize,
    /// Whether it stands outside every string and body.
    pub outside: bool,
}

impl Token {
    pub fn text<'a>(&self, of: &'a str) -> &'a str {
        &of[self.bare..self.end]
    }

    /// The schema before the name, if there is one.
    pub fn schema<'a>(&self, of: &'a str) -> Option<&'a str> {
        of[self.start..self.bare].strip_suffix('.')
    }
}

/// The tokens of a text, in order.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut reader = Reader { text, at: 0, quoted: false, bodies: Vec::new(), tokens: Vec::new() };
    while reader.at < text.len() {
        reader.step();
    }
    with_schemas(text, reader.tokens)
}

/// Whether a token is a word or a number.
pub fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|first| first.is_alphanumeric() || first == '_')
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    quoted: bool,
    /// The tags of the bodies around this place.
    bodies: Vec<&'a str>,
    tokens: Vec<Token>,
}

impl<'a> Reader<'a> {
    fn step(&mut self) {
        let text = self.text;
        let rest = &text[self.at..];
        let Some(first) = rest.chars().next() else { return };
        if first.is_whitespace() {
            self.at += first.len_utf8();
        } else if !self.quoted && rest.starts_with("--") {
            self.at += rest.find('\n').unwrap_or(rest.len());
        } else if first == '\'' {
            self.take(1);
            self.quoted = !self.quoted;
        } else if let Some(tag) = tag(rest).filter(|_| !self.quoted) {
            self.body(tag);
        } else {
            self.take(length(rest, first));
        }
    }

    fn take(&mut self, length: usize) {
        let (start, end) = (self.at, self.at + length);
        let outside = self.bodies.is_empty() && !self.quoted;
        self.tokens.push(Token { start, bare: start, end, outside });
        self.at = end;
    }

    /// Begins or ends a body.
    fn body(&mut self, tag: &'a str) {
        self.take(tag.len());
        if self.bodies.last() == Some(&tag) {
            self.bodies.pop();
        } else {
            self.bodies.push(tag);
        }
    }
}

/// The tag of a dollar quote that a text begins with, like `$$` or `$make$`.
fn tag(rest: &str) -> Option<&str> {
    let inner = rest.strip_prefix('$')?;
    let name = inner.find(|c: char| !c.is_alphabetic() && c != '_')?;
    inner[name..].starts_with('$').then(|| &rest[..name + 2])
}

/// How long the token is that a text begins with.
fn length(rest: &str, first: char) -> usize {
    if first.is_alphanumeric() || first == '_' {
        let ends = |c: char| !c.is_alphanumeric() && c != '_' && c != '$';
        return rest.find(ends).unwrap_or(rest.len());
    }
    let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
    operator.map_or(first.len_utf8(), |operator| operator.len())
}

/// Joins a schema to the name that follows it.
fn with_schemas(text: &str, tokens: Vec<Token>) -> Vec<Token> {
    let mut joined: Vec<Token> = Vec::with_capacity(tokens.len());
    for token in tokens {
        if let [.., schema, dot] = joined[..]
            && dot.text(text) == "."
            && SCHEMAS.contains(&schema.text(text))
            && schema.end == dot.start
            && dot.end == token.start
            && is_word(token.text(text))
        {
            joined.truncate(joined.len() - 2);
            joined.push(Token { start: schema.start, ..token });
        } else {
            joined.push(token);
        }
    }
    joined
}
