"""Policies: rules of an organization over what is planned, judged before anything is done."""
