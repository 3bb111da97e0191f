//! A large cluster in a directory that forgets, lies, lags and repeats itself: nothing is violated, and a worker costs
//! what it costs in a small one.

use sim::run_fleet;

const FEW: usize = 100;
const MANY: usize = 1000;
/// Faults hit a few workers, and requests come to a few, whatever their number.
const SHARE: f64 = 0.15;

#[test]
fn a_thousand_workers_are_listed_and_cost_what_a_hundred_cost() {
    let [few, many] = [FEW, MANY].map(run_fleet);
    println!("{FEW} workers: {few:?}\n{MANY} workers: {many:?}");
    for (fleet, workers) in [(&few, FEW), (&many, MANY)] {
        assert_eq!(fleet.violation, None);
        assert_eq!(fleet.listed, workers);
    }
    for (what, few, many) in [("sights", few.sights, many.sights), ("frames", few.frames, many.frames)] {
        assert!(many > 0.0 && (many / few - 1.0).abs() <= SHARE, "{what}: {few} among {FEW}, {many} among {MANY}");
    }
}
