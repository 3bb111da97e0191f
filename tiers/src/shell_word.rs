//! Words of commands that a log names for a person to run.

/// Returns the text as one word of a shell, whatever is in it.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_takes_it_as_one_word() {
        for word in ["plain", "a b", "it's", "$HOME `id` \\ \"x\" *", "-n"] {
            let printed = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output();
            assert_eq!(printed.expect("it runs").stdout, word.as_bytes());
        }
    }
}
