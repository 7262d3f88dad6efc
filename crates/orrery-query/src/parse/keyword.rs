//! The reserved words.

macro_rules! keywords {
    ($($variant:ident $text:literal),* $(,)?) => {
        /// A word that can be neither an alias nor follow a dot.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Keyword { $($variant),* }

        impl Keyword {
            /// The keyword spelled by `word`, in any case.
            pub fn of(word: &str) -> Option<Keyword> {
                $(if word.eq_ignore_ascii_case($text) { return Some(Keyword::$variant); })*
                None
            }
        }
    };
}

keywords! {
    And "AND", Array "ARRAY", As "AS", Asc "ASC", Between "BETWEEN", By "BY", Case "CASE", Cast "CAST",
    Convert "CONVERT", Cross "CROSS", Desc "DESC", Distinct "DISTINCT", Else "ELSE", End "END", Escape "ESCAPE",
    Exists "EXISTS", False "FALSE", For "FOR", From "FROM", Group "GROUP", Having "HAVING", In "IN", Inner "INNER",
    Insert "INSERT", Into "INTO", Is "IS", Join "JOIN", Left "LEFT", Like "LIKE", Limit "LIMIT", Not "NOT",
    Null "NULL", Offset "OFFSET", On "ON", Or "OR", Order "ORDER", Outer "OUTER", Over "OVER", Right "RIGHT",
    Select "SELECT", Set "SET", Then "THEN", Top "TOP", True "TRUE", Undefined "UNDEFINED", Udf "UDF",
    Update "UPDATE", Value "VALUE", When "WHEN", Where "WHERE", With "WITH",
}
