//! A run: loads a model, does the works, and takes the limits.

use crate::cost;
use crate::error::BenchError;
use crate::limits::MachineLimits;
use crate::model::Model;
use crate::report::{Measured, Report};
use crate::settings::Settings;
use crate::steps::Steps;
use crate::work::Work;
use engine::cpu::Isa;
use engine::models::ModelFiles;

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is measured now.
    pub what: String,
    /// Parts that are done.
    pub done: usize,
    /// All parts.
    pub total: usize,
}

/// A model that is ready to be measured.
pub struct Bench {
    name: String,
    model: Model,
    steps: Steps,
    works: Vec<Work>,
    settings: Settings,
    isa: Isa,
}

impl Bench {
    /// Loads the model; `progress` is called with the share of it that is done. KV has the number format of the
    /// weights. Errors: the settings do not suit the model, or there is no memory.
    pub fn open(
        files: &ModelFiles,
        name: &str,
        settings: &Settings,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Self, BenchError> {
        let context = u32::try_from(files.spec.context).unwrap_or(u32::MAX);
        let works = settings.works(context)?;
        let isa = Isa::best();
        let model = Model::load(files, settings.card.as_ref(), progress)?;
        let steps = Steps::new(&model, &works, settings, isa)?;
        Ok(Self { name: name.to_owned(), model, steps, works, settings: settings.clone(), isa })
    }

    /// Runs the measurement; `progress` is called before each part. Errors: a step failed, or there is no memory.
    pub fn measure(mut self, progress: &mut dyn FnMut(&Progress)) -> Result<Report, BenchError> {
        // Of each work one sample that does not count; and the limits twice.
        let total = self.works.len() * (self.settings.samples + 1) + 2;
        let mut done = 0;
        let mut tell = |what: &dyn ToString| {
            progress(&Progress { what: what.to_string(), done, total });
            done += 1;
        };
        let limits = || MachineLimits::measure(&self.settings, &self.model, self.isa);
        tell(&"the machine's limits");
        let before = limits()?;
        let mut measured = Vec::new();
        for &work in &self.works {
            tell(&work);
            if let Work::Decode { batch, context } | Work::Mixed { batch, context, .. } = work {
                self.steps.contexts(batch, context)?;
            }
            self.steps.sample(work)?;
            let mut samples = Vec::new();
            for _ in 0..self.settings.samples {
                tell(&work);
                samples.push(self.steps.sample(work)?);
            }
            measured.push(Measured {
                work,
                samples,
                costs: cost::of(work, self.settings.cut, &self.model, self.steps.layout()),
            });
        }
        tell(&"the machine's limits, again");
        // What else the host does comes and goes.
        let limits = before.or_better(limits()?);
        Ok(Report::new(&self.name, &self.model, &self.steps, &self.settings, &limits, &measured))
    }
}
