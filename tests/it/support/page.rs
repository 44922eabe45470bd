//! The fenced blocks of a page of the book.

/// A fenced block, or the statements that a page is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// The line that opens it, from 1 on.
    pub line: usize,
    /// The word behind the fence.
    pub language: String,
    /// The rest of the line that opens it.
    pub remark: String,
    /// Its text.
    pub text: String,
    /// The refusal of its last statement, if the page shows one behind it.
    pub error: Option<String>,
}

impl Block {
    fn open(line: usize, info: &str) -> Self {
        let (language, remark) = info.split_once(' ').unwrap_or((info, ""));
        Self { line, language: language.into(), remark: remark.into(), ..Self::default() }
    }

    /// Whether it runs; an error if it is skipped without a reason.
    pub fn runs(&self) -> Result<bool, String> {
        if self.remark.is_empty() {
            return Ok(true);
        }
        match self.remark.strip_prefix("no-run: ") {
            Some(reason) if !reason.trim().is_empty() => Ok(false),
            _ => Err(format!("a block is skipped by `no-run: REASON`, got {:?}", self.remark)),
        }
    }
}

/// The blocks of a document, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(Block, &str)> = None;
    let mut adjacent = false;
    for (number, line) in text.lines().enumerate() {
        if let Some((mut block, end)) = open.take() {
            if line != end {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some((block, end));
                continue;
            }
            match blocks.last_mut() {
                Some(last) if adjacent && block.language == "text" && last.language == "sql" => {
                    last.error = block.text.starts_with("ERROR:").then_some(block.text);
                }
                _ => blocks.push(block),
            }
            adjacent = true;
        } else if let Some(info) = line.strip_prefix("```") {
            open = Some((Block::open(number + 1, info), "```"));
        } else if line == "<!-- given" {
            open = Some((Block::open(number + 1, "given"), "-->"));
        } else {
            adjacent &= line.is_empty();
        }
    }
    assert!(open.is_none(), "a block is not closed: {open:?}");
    blocks
}
