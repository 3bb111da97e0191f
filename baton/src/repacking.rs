//! What is told of weights that are repacked when they are loaded.

use crate::output::human_bytes;
use engine::cpu::LoadPlan;

/// Says which formats are kept as Q8_0, what that takes, and what it changes; `None`: every weight is kept as it is.
pub(crate) fn told(plan: &LoadPlan) -> Option<String> {
    let shares = &plan.repacked;
    let formats: Vec<String> =
        shares.iter().map(|share| format!("{} ({} tensors)", share.format, share.tensors)).collect();
    if formats.is_empty() {
        return None;
    }
    let stored = human_bytes(shares.iter().map(|share| share.stored_bytes).sum());
    let kept = human_bytes(shares.iter().map(|share| share.kept_bytes).sum());
    let error_max = shares.iter().map(|share| share.error_max).fold(0.0, f32::max);
    let error = if error_max == 0.0 {
        "no weight changes".to_owned()
    } else {
        // The largest that was measured, where all were.
        let measured = shares.iter().map(|share| share.error).collect::<Option<Vec<f32>>>();
        let measured = measured.map(|errors| percent(errors.into_iter().fold(0.0, f32::max)));
        let measured = measured.map_or_else(String::new, |most| format!(" ({most} in a sample of rows)"));
        format!("a weight changes by at most {}{measured} of the largest of its block of 32", percent(error_max))
    };
    Some(format!("{} kept as Q8_0, {stored} as {kept}: {error}", formats.join(", ")))
}

fn percent(share: f32) -> String {
    format!("{:.3}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::cpu::RepackedShare;
    use engine::quant::Q8_0_ERROR_MAX;

    fn share(format: &str, error: Option<f32>) -> RepackedShare {
        let error_max = if format == "Q5_0" { 0.0 } else { Q8_0_ERROR_MAX };
        let (stored_bytes, kept_bytes) = (22 << 20, 34 << 20);
        RepackedShare { format: format.to_owned(), tensors: 7, stored_bytes, kept_bytes, error_max, error }
    }

    #[test]
    fn what_changes_is_told_with_its_bound_and_what_was_measured() {
        let told_of = |repacked| told(&LoadPlan { bytes: 1 << 30, repacked });
        assert_eq!(told_of(Vec::new()), None);
        assert_eq!(
            told_of(vec![share("Q5_0", Some(0.0))]).as_deref(),
            Some("Q5_0 (7 tensors) kept as Q8_0, 22 MiB as 34 MiB: no weight changes")
        );
        let both = vec![share("Q5_0", Some(0.0)), share("FP8", Some(0.0031))];
        assert_eq!(
            told_of(both).as_deref(),
            Some(
                "Q5_0 (7 tensors), FP8 (7 tensors) kept as Q8_0, 44 MiB as 68 MiB: a weight changes by at most 0.394% \
                 (0.310% in a sample of rows) of the largest of its block of 32"
            )
        );
        let unmeasured = told_of(vec![share("Q5_K", None)]).expect("told");
        assert!(unmeasured.contains("at most 0.394% of the largest"), "{unmeasured}");
    }
}
