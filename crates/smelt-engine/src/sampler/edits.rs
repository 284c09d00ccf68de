//! Logit bias and the repetition penalties: edits of single logits, undone after the step.

use super::SamplerSettings;

/// A row of logits with a log of what was changed, so that the caller gets the row back as the model wrote it.
pub(super) struct Edits<'a> {
    /// (vocab_size)
    pub(super) logits: &'a mut [f32],
    undo: &'a mut Vec<(u32, f32)>,
}

impl<'a> Edits<'a> {
    pub(super) fn new(logits: &'a mut [f32], undo: &'a mut Vec<(u32, f32)>) -> Self {
        undo.clear();
        Self { logits, undo }
    }

    /// Replaces a logit. A finite result stays finite in `f32`; a masked token (−inf) stays masked.
    pub(super) fn edit(&mut self, token: u32, change: impl FnOnce(f64) -> f64) {
        // A history may hold tokens of another vocabulary (a draft model's padding): they have no logit to edit.
        let Some(logit) = self.logits.get_mut(token as usize) else { return };
        self.undo.push((token, *logit));
        let changed = change(f64::from(*logit));
        if *logit != f32::NEG_INFINITY {
            *logit = if changed == f64::NEG_INFINITY {
                f32::NEG_INFINITY
            } else {
                changed.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
            };
        }
    }

    /// Adds the biases of the settings.
    pub(super) fn add_bias(&mut self, bias: &[(u32, f32)]) {
        for &(token, bias) in bias {
            self.edit(token, |logit| logit + f64::from(bias));
        }
    }

    /// Repetition (arXiv 1909.05858), presence and frequency penalties on tokens with these `counts`.
    ///
    /// The paper only divides by the repetition penalty, which would favour repeated tokens with negative logits, so
    /// those are multiplied, as every current engine does.
    pub(super) fn penalise(&mut self, settings: &SamplerSettings, counts: &[(u32, u32)]) {
        let repeat = f64::from(settings.repeat_penalty);
        let presence = f64::from(settings.presence_penalty);
        let frequency = f64::from(settings.frequency_penalty);
        for &(token, count) in counts {
            self.edit(token, |logit| {
                let scaled = if logit <= 0.0 { logit * repeat } else { logit / repeat };
                scaled - f64::from(count) * frequency - presence
            });
        }
    }
}

impl Drop for Edits<'_> {
    fn drop(&mut self) {
        // Last change first, since a token may have been edited several times.
        while let Some((token, logit)) = self.undo.pop() {
            self.logits[token as usize] = logit;
        }
    }
}
