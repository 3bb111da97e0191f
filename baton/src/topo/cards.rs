//! The cards of this host that the device `cuda` could compute on.

use super::text::wrapped;
use crate::output::human_bytes;
use cuda::Identity;
use engine::cuda::CudaError;
use serde::Serialize;
use std::fmt::Write;

/// A card of this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct HostCard {
    name: String,
    memory_bytes: u64,
    compute_capability: String,
}

/// The cards of this host by number, or why there are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cards {
    cards: Vec<HostCard>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Asks the driver for its cards.
pub(super) fn find() -> Cards {
    Cards::of(engine::cuda::cards())
}

impl Cards {
    fn of(found: Result<Vec<Identity>, CudaError>) -> Self {
        let card = |Identity { name, capability: (major, minor), memory }| HostCard {
            name,
            memory_bytes: memory,
            compute_capability: format!("{major}.{minor}"),
        };
        match found {
            Ok(cards) => Self { cards: cards.into_iter().map(card).collect(), reason: None },
            Err(error) => Self { cards: Vec::new(), reason: Some(error.to_string()) },
        }
    }

    /// Returns them as lines.
    pub(super) fn lines(&self) -> String {
        let mut text = "\nCards for the device cuda\n\n".to_owned();
        for (number, HostCard { name, memory_bytes, compute_capability }) in self.cards.iter().enumerate() {
            let memory = human_bytes(*memory_bytes);
            writeln!(text, "  {number}  {name}, {memory}, compute capability {compute_capability}")
                .expect("a text takes all");
        }
        if let Some(reason) = &self.reason {
            wrapped(&mut text, "  none: ", &format!("{reason} (baton doctor says more)"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_and_their_absence_are_told() {
        let h100 = Identity { name: "NVIDIA H100".to_owned(), capability: (9, 0), memory: 80 << 30 };
        let found = Cards::of(Ok(vec![h100])).lines();
        assert_eq!(found, "\nCards for the device cuda\n\n  0  NVIDIA H100, 80 GiB, compute capability 9.0\n");
        let none = Cards::of(Err(CudaError::Card { card: 1, cards: 0 })).lines();
        assert!(none.contains("  none: there is no card 1"), "{none}");
    }
}
