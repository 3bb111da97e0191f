//! The manifests of `deploy/kubernetes`: each preset of the Helm chart, rendered for `kubectl apply -k`.

use crate::error::ChoreError;
use crate::target;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The chart, from the root of the workspace.
const CHART: &str = "deploy/helm";
/// Folder of the rendered presets.
const RENDERED: &str = "deploy/kubernetes";
/// Name of the release, and of the namespace.
const RELEASE: &str = "baton";
/// The presets, and the files of values that make each, a later one over an earlier one.
const PRESETS: [(&str, &[&str]); 7] = [
    ("cpu-demo", &["cpu-demo"]),
    ("gpu", &["gpu"]),
    ("gpu-rdma", &["gpu-rdma"]),
    ("nvme", &["gpu", "nvme"]),
    ("etcd", &["cpu-demo", "etcd"]),
    ("monitoring", &["cpu-demo", "monitoring"]),
    ("gateway", &["cpu-demo", "gateway"]),
];
/// First lines of a generated file.
const HEADER: &str = "# Made by `cargo xtask manifests` from the chart in deploy/helm. Change that instead.\n";

/// Renders in memory: paths from the root, and contents. Errors: helm is missing, or refuses the chart.
fn render(root: &Path) -> Result<Vec<(PathBuf, String)>, ChoreError> {
    let mut outputs = Vec::new();
    for (preset, values) in PRESETS {
        let folder = Path::new(RENDERED).join(preset);
        outputs.push((folder.join("manifests.yaml"), format!("{HEADER}{}", template(root, values)?)));
        let kustomization = format!(
            "{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: {RELEASE}\n\
             resources:\n  - manifests.yaml\n"
        );
        outputs.push((folder.join("kustomization.yaml"), kustomization));
    }
    Ok(outputs)
}

/// Returns what helm makes of the chart with these files of values.
fn template(root: &Path, values: &[&str]) -> Result<String, ChoreError> {
    let files = values.iter().flat_map(|values| ["--values".to_owned(), format!("{CHART}/presets/{values}.yaml")]);
    let arguments =
        ["template", RELEASE, CHART, "--namespace", RELEASE, "--no-hooks"].map(str::to_owned).into_iter().chain(files);
    let arguments: Vec<String> = arguments.collect();
    let command = || format!("helm {}", arguments.join(" "));
    let output = Command::new(helm(root)).args(&arguments).current_dir(root).output();
    let output = output.map_err(|source| ChoreError::NotRun { command: command(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ChoreError::Failed { command: command(), said });
    }
    String::from_utf8(output.stdout).map_err(|source| ChoreError::NotText { command: command(), source })
}

/// Returns the helm that `scripts/install-tools kubernetes` has installed, or that of the system.
fn helm(root: &Path) -> PathBuf {
    let installed = target(root).join("kubernetes/helm");
    if installed.is_file() { installed } else { PathBuf::from("helm") }
}

/// Writes what [`render`] made. Errors: those, and a file that cannot be written.
pub(crate) fn write(root: &Path) -> Result<String, ChoreError> {
    let outputs = render(root)?;
    for (path, text) in &outputs {
        let target = root.join(path);
        let folder = target.parent().expect("a generated file lies in a folder");
        std::fs::create_dir_all(folder).map_err(ChoreError::of_file(folder))?;
        std::fs::write(&target, text).map_err(ChoreError::of_file(path))?;
    }
    Ok(format!("wrote {} presets to {RENDERED}", PRESETS.len()))
}

/// Compares the files with what [`render`] makes. Errors: those of rendering, and the files that differ.
pub(crate) fn check(root: &Path) -> Result<String, ChoreError> {
    let outputs = render(root)?;
    let is_stale =
        |(path, text): &&(PathBuf, String)| std::fs::read_to_string(root.join(path)).ok().as_ref() != Some(text);
    let stale: Vec<_> = outputs.iter().filter(is_stale).map(|(path, _)| path.display().to_string()).collect();
    if stale.is_empty() {
        Ok(format!("{RENDERED} is what the chart makes"))
    } else {
        Err(ChoreError::StaleManifests(stale.join(", ")))
    }
}
