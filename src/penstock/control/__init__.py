"""Control: from statistics to changes, by policies that can say why."""
