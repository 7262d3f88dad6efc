//! Cuts what is typed into statements and commands. A statement ends with a semicolon outside of strings and comments and
//! may take many lines; a command is a line that begins with a backslash where no statement has begun.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Without its semicolon.
    Statement(String),
    /// Without its backslash.
    Command(String),
}

/// What has been read of a statement that goes on.
#[derive(Debug, Default)]
pub struct Splitter {
    text: String,
    inside: Inside,
}

/// Where the text read so far ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Plain,
    /// A string, with the quote that ends it.
    String(char),
    Comment,
}

impl Splitter {
    /// Is a statement under way?
    pub fn is_pending(&self) -> bool {
        !self.text.trim().is_empty()
    }

    /// Takes the next line; gives what it completes.
    pub fn line(&mut self, line: &str) -> Vec<Piece> {
        if !self.is_pending()
            && let Some(command) = line.trim().strip_prefix('\\')
        {
            self.text.clear();
            return vec![Piece::Command(command.trim().to_owned())];
        }
        let mut pieces = Vec::new();
        let mut rest = line.chars().peekable();
        while let Some(character) = rest.next() {
            match (self.inside, character) {
                (Inside::Plain, ';') => pieces.extend(self.end()),
                (Inside::Plain, '-') if rest.peek() == Some(&'-') => break,
                (Inside::Plain, '/') if rest.peek() == Some(&'*') => {
                    rest.next();
                    self.inside = Inside::Comment;
                }
                (Inside::Comment, '*') if rest.peek() == Some(&'/') => {
                    rest.next();
                    self.inside = Inside::Plain;
                    self.text.push(' ');
                }
                (Inside::Comment, _) => {}
                (Inside::Plain, '\'' | '"') => {
                    self.inside = Inside::String(character);
                    self.text.push(character);
                }
                (Inside::String(_), '\\') => {
                    self.text.push(character);
                    self.text.extend(rest.next());
                }
                (Inside::String(quote), _) => {
                    self.text.push(character);
                    if character == quote {
                        self.inside = Inside::Plain;
                    }
                }
                (Inside::Plain, _) => self.text.push(character),
            }
        }
        self.text.push('\n');
        pieces
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self) -> Option<Piece> {
        self.inside = Inside::Plain;
        self.end()
    }

    /// Forgets a statement that has begun.
    pub fn clear(&mut self) {
        self.finish();
    }

    fn end(&mut self) -> Option<Piece> {
        let text = std::mem::take(&mut self.text);
        let statement = text.trim();
        (!statement.is_empty()).then(|| Piece::Statement(statement.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<Piece> {
        let mut splitter = Splitter::default();
        let mut pieces: Vec<Piece> = text.lines().flat_map(|line| splitter.line(line)).collect();
        pieces.extend(splitter.finish());
        pieces
    }

    fn statements(text: &str) -> Vec<String> {
        pieces(text)
            .into_iter()
            .map(|piece| match piece {
                Piece::Statement(statement) => statement,
                Piece::Command(command) => panic!("a command: {command}"),
            })
            .collect()
    }

    #[test]
    fn a_statement_may_take_many_lines_and_a_line_many_statements() {
        assert_eq!(
            statements("SELECT *\nFROM c;SELECT 1;"),
            ["SELECT *\nFROM c", "SELECT 1"]
        );
        assert_eq!(statements("SELECT 1"), ["SELECT 1"]);
        assert_eq!(statements(";;  ;\n"), [""; 0]);
    }

    #[test]
    fn a_semicolon_in_a_string_or_comment_ends_nothing() {
        assert_eq!(
            statements(r#"SELECT ";", '\';', "a\";b";"#),
            [r#"SELECT ";", '\';', "a\";b""#]
        );
        assert_eq!(statements("SELECT 1 -- one;\n+ 1;"), ["SELECT 1 \n+ 1"]);
        assert_eq!(statements("SELECT /* ; \n ; */ 1;"), ["SELECT \n  1"]);
    }

    #[test]
    fn a_command_is_a_line_of_its_own() {
        assert_eq!(
            pieces("\\use db/c\nSELECT 1;\n  \\d  "),
            [
                Piece::Command("use db/c".into()),
                Piece::Statement("SELECT 1".into()),
                Piece::Command("d".into()),
            ]
        );
        assert_eq!(statements("SELECT\n\\d;"), ["SELECT\n\\d"], "in a statement it is text");
    }
}
