//! What a port promises to bring, by what the system tells of its link and of the card's way to the processor: a
//! decision over recorded facts.

use std::path::Path;

/// What of a PCIe link's bits is left for bytes of memory, beside the heads of packets and what is acknowledged.
const PCIE_PAYLOAD: f64 = 0.85;

/// Bytes a second of a link of this `rate` (such as `100 Gb/sec (4X EDR)`), on a card whose PCIe link has this
/// `speed` (such as `16.0 GT/s PCIe`) and `width` (lanes): what the narrower of both brings. `None`: the rate is
/// not known.
fn promised(rate: &str, speed: &str, width: &str) -> Option<f64> {
    let first = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok().filter(|number| *number > 0.0);
    let link = first(rate).filter(|_| rate.contains("Gb/sec"))? * 1e9 / 8.0;
    let pcie = first(speed).zip(first(width)).map(|(transfers, lanes)| {
        // Of the first two generations ten bits carry eight.
        let coding = if transfers < 8.0 { 8.0 / 10.0 } else { 128.0 / 130.0 };
        transfers * 1e9 * coding * lanes * PCIE_PAYLOAD / 8.0
    });
    Some(pcie.map_or(link, |pcie| pcie.min(link)))
}

/// Returns the same of the port of which the system tells in `port`, on the card of which it tells in `card`.
pub(super) fn of_port(port: &Path, card: &Path) -> Option<f64> {
    let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    promised(&read(port, "rate"), &read(card, "current_link_speed"), &read(card, "current_link_width"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rate: &str, speed: &str, width: &str, gigabytes_per_s: Option<f64>) {
        let promised = promised(rate, speed, width).map(|bytes| (bytes / 1e8).round() / 10.0);
        assert_eq!(promised, gigabytes_per_s);
    }

    #[test]
    fn the_narrower_of_link_and_pcie_is_promised() {
        check("400 Gb/sec (4X NDR)\n", "32.0 GT/s PCIe\n", "16\n", Some(50.0));
        check("400 Gb/sec (4X NDR)", "16.0 GT/s PCIe", "16", Some(26.8));
        // A card in half a slot, and one whose slot is of another time.
        check("100 Gb/sec (4X EDR)", "8.0 GT/s PCIe", "8", Some(6.7));
        check("100 Gb/sec (4X EDR)", "5.0 GT/s PCIe", "8", Some(3.4));
        // A cable of which one of four lanes is left.
        check("25 Gb/sec (1X EDR)", "16.0 GT/s PCIe", "16", Some(3.1));
        check("2.5 Gb/sec (1X SDR)", "", "", Some(0.3));
        check("100 Gb/sec (4X EDR)", "Unknown", "0", Some(12.5));
        check("", "16.0 GT/s PCIe", "16", None);
        check("0 Gb/sec", "16.0 GT/s PCIe", "16", None);
    }

    #[test]
    fn what_is_planted_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(of_port(folder.path(), folder.path()), None);
        let facts = [
            ("rate", "200 Gb/sec (4X HDR)\n"),
            ("current_link_speed", "8.0 GT/s PCIe\n"),
            ("current_link_width", "4\n"),
        ];
        for (name, text) in facts {
            std::fs::write(folder.path().join(name), text).expect("it can be written");
        }
        let promised = of_port(folder.path(), folder.path()).expect("it is told");
        assert!((3.3e9..3.4e9).contains(&promised), "{promised}");
    }
}
