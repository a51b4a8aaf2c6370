"""Between a robot and the model: conventions, images, prompts, tokens, normalisation."""
