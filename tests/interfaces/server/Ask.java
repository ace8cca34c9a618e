import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Statement;
import java.util.Properties;

/** Logs in by JDBC, looks around and asks: one line for each thing that it is told. Arguments: port; the password is in the environment. */
class Ask {
    public static void main(String[] arguments) throws SQLException {
        Properties how = new Properties();
        how.setProperty("user", "ana");
        how.setProperty("password", System.getenv("PGPASSWORD"));
        how.setProperty("options", "-c dpsql.epsilon=0.5");
        how.setProperty("prepareThreshold", "1");
        String url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/clinic";
        try (Connection connection = DriverManager.getConnection(url, how)) {
            lookAround(connection.getMetaData());
            String text = "SELECT plan, COUNT(*) AS n, AVG(cost) AS cost FROM visits"
                + " WHERE days > ? AND day >= ? AND plan = ? AND cost < ? GROUP BY plan ORDER BY plan";
            try (PreparedStatement question = connection.prepareStatement(text)) {
                for (int time = 0; time < 3; time++) { // described, then prepared by name, then in binary
                    question.setInt(1, 0);
                    question.setDate(2, Date.valueOf("2024-01-01"));
                    question.setString(3, "A");
                    question.setDouble(4, 900.5);
                    try (ResultSet rows = question.executeQuery()) {
                        ResultSetMetaData described = rows.getMetaData();
                        while (rows.next()) {
                            say("row", rows.getString(1), rows.getLong(2), rows.getDouble(3), described.getColumnTypeName(2),
                                described.getColumnTypeName(3));
                        }
                    }
                    for (SQLWarning each = question.getWarnings(); each != null; each = each.getNextWarning()) {
                        say("told", each.getMessage());
                    }
                }
            }
            connection.setAutoCommit(false);
            try (Statement question = connection.createStatement()) {
                question.setFetchSize(1); // by a portal
                try (ResultSet rows = question.executeQuery("SELECT name, beds, beds / 4.0 AS d FROM wards ORDER BY beds")) {
                    while (rows.next()) {
                        say("ward", rows.getString(1), rows.getInt(2), rows.getBigDecimal(3).compareTo(BigDecimal.ONE));
                    }
                }
                connection.rollback();
                question.executeQuery("SELECT cost FROM visits");
            } catch (SQLException error) {
                say("refused", error.getSQLState());
            }
            connection.rollback();
        }
    }

    private static void lookAround(DatabaseMetaData known) throws SQLException {
        say("product", known.getDatabaseProductName());
        try (ResultSet found = known.getSchemas()) {
            while (found.next()) {
                say("schema", found.getString("TABLE_SCHEM"));
            }
        }
        try (ResultSet found = known.getTables(null, "public", "%", new String[] {"TABLE"})) {
            while (found.next()) {
                say("table", found.getString("TABLE_NAME"), found.getString("REMARKS"));
            }
        }
        try (ResultSet found = known.getColumns(null, "public", "visits", "%")) {
            while (found.next()) {
                say("column", found.getString("COLUMN_NAME"), found.getString("TYPE_NAME"));
            }
        }
        try (ResultSet found = known.getPrimaryKeys(null, "public", "visits")) {
            say("keys", found.next());
        }
    }

    private static void say(Object... parts) {
        StringBuilder line = new StringBuilder();
        for (Object part : parts) {
            line.append(line.length() == 0 ? "" : "|").append(part);
        }
        System.out.println(line);
    }
}
