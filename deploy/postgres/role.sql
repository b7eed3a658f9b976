-- The server's role: it owns its schema and nothing else, and cannot create roles, databases or other schemas. Execute
-- this once in the server's database, as a superuser or the database's owner:
--
--   ROLE_PASSWORD=… psql "$ADMIN_DATABASE_URL" -v ON_ERROR_STOP=1 -f deploy/postgres/role.sql
\getenv password ROLE_PASSWORD
CREATE ROLE stepwell LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
CREATE SCHEMA stepwell AUTHORIZATION stepwell;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
