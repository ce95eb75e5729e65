//! Enums of a closed set of words, declared once: each variant with the word for it.

/// Declares an enum with a word for each variant: `ALL`, `as_str` and `parse` come from the same list.
#[macro_export]
macro_rules! word_enum {
    ($(#[$about:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        $vis enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All values, in the order of their declaration.
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word for it: on the wire, in status, logs and metrics.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The value with this word.
            $vis fn parse(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == word)
            }
        }
    };
}
