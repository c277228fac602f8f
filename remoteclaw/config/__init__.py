"""The configuration: its model, its loading, checking and editing, and the state directory."""
