//! What an answer must look like, as a set of tokens that may come next.

/// Narrows the tokens that an answer may go on with: a grammar, a schema, a list of words.
///
/// The engine asks for a mask just before it chooses a token and reports the choice at once. What takes long belongs
/// between the two: [`Constraint::accept`] may start computing the next mask on a thread of its own, and
/// [`Constraint::mask`] waits for it, while the engine computes the step.
pub trait Constraint: Send {
    /// The tokens that may come next: bit `t % 32` of word `t / 32` for token `t`; tokens beyond the words may not. `None`
    /// while all may. A token that ends the answer is allowed where the answer may end.
    ///
    /// # Errors
    /// Why the constraint can't go on; the request fails with it.
    fn mask(&mut self) -> Result<Option<&[u32]>, String>;

    /// Takes the token that was chosen.
    ///
    /// # Errors
    /// Why the constraint can't go on; the request fails with it.
    fn accept(&mut self, token: u32) -> Result<(), String>;

    /// The same constraint in its present state, for another answer to the same prompt.
    fn fork(&self) -> Box<dyn Constraint>;
}

/// Bans what `mask` does not allow.
pub(crate) fn apply(mask: &[u32], logits: &mut [f32]) {
    let (masked, beyond) = logits.split_at_mut(logits.len().min(mask.len() * 32));
    for (word, logits) in mask.iter().zip(masked.chunks_mut(32)) {
        if *word == u32::MAX {
            continue;
        }
        for (bit, logit) in logits.iter_mut().enumerate() {
            if word >> bit & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
    beyond.fill(f32::NEG_INFINITY);
}
