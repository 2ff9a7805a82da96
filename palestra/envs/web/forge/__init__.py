"""A project on a code forge: the application is Fossil, with check-ins, tickets, wiki pages and a forum."""
