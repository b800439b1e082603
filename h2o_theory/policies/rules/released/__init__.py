"""Rules as papers print them and code ships them, which differ from the rules they describe."""
