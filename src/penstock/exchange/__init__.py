"""What happens between subqueries: payloads, load balancers and input mergers."""
