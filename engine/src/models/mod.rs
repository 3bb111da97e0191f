//! Model families: what config.json says, and the forward pass.
